#include "base/threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <vector>

#include "support/child.h"
#include "support/errors.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Runs `test` where no further thread can be started, and returns 0 if all its expectations were met. What is missing is
// address space for stacks, since RLIMIT_NPROC does not apply to root.
int without_threads(const std::function<void()>& test) {
  return run_in_child([&] {
    ::pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, std::size_t{1} << 46U);
    if (::pthread_setattr_default_np(&attributes) != 0) throw std::runtime_error("cannot set the size of stacks");
    test();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  });
}

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
