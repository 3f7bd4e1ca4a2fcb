#include "base/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "support/errors.h"
#include "support/without_threads.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Threads, ANeededOneThatCannotBeStartedIsOneLine) {
  EXPECT_EQ(without_threads([] {
              EXPECT_THAT(error_text(ExitCode::preflight, [] { (void)start_thread("the test", [] {}); }),
                          AllOf(HasSubstr("cannot start a thread for the test: Resource temporarily unavailable; "),
                                HasSubstr("raise the limit (ulimit -u, --pids-limit of Docker, TasksMax of systemd)")));
              EXPECT_EQ(startable_threads(3), 0);
            }),
            0);
}

TEST(Threads, PartsAreDoneByFewer) {
  const auto expect_all = [] {
    for (const int parts : {0, 1, 2, 7}) {
      std::vector<std::atomic<int>> calls(7);
      run_parts(parts, [&](int part) { ++calls[static_cast<std::size_t>(part)]; });
      for (int part = 0; part < std::max(parts, 1); ++part) EXPECT_EQ(calls[static_cast<std::size_t>(part)], 1) << part;
    }
  };
  expect_all();
  EXPECT_EQ(without_threads(expect_all), 0);
}

TEST(Threads, AsManyAsThereAre) {
  EXPECT_EQ(startable_threads(0), 0);
  EXPECT_EQ(startable_threads(5), 5);
}

}  // namespace
}  // namespace ddp
