#include "base/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/clock.h"

namespace ddp {
namespace {

// Uses standard input as an output, because only the standard descriptors keep track of their readers.
TEST(OutputTest, AReaderThatStopsReadingIsWaitedForOnce) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  const int saved = dup(0);
  ASSERT_EQ(dup2(pipe_ends[1], 0), 0);
  EXPECT_TRUE(write_patiently(0, "a line\n"));
  const std::string much(200'000, 'x');
  double begin = now();
  EXPECT_FALSE(write_patiently(0, much));
  EXPECT_GT(now() - begin, 9);
  EXPECT_LT(now() - begin, 60);
  begin = now();
  EXPECT_FALSE(write_patiently(0, "another\n"));
  EXPECT_LT(now() - begin, 5);
  // The reader resumes.
  std::string read_back(200'000, '\0');
  EXPECT_GT(read(pipe_ends[0], read_back.data(), read_back.size()), 0);
  EXPECT_TRUE(write_patiently(0, "one more\n"));
  ASSERT_EQ(dup2(saved, 0), 0);
  for (const int descriptor : {saved, pipe_ends[0], pipe_ends[1]}) close(descriptor);
}

}  // namespace
}  // namespace ddp
