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

// Whatever is in names of files, hosts and layers, the terminal shows it and obeys nothing.
TEST(OutputTest, ATerminalObeysNothingOfWhatIsShown) {
  EXPECT_EQ(printable("grün, 猫 and 😀\n"), "grün, 猫 and 😀\n");
  EXPECT_EQ(printable("\x1b]0;title\x07\x1b[2J\r\t\x7f"), "?]0;title??[2J???");
  EXPECT_EQ(printable("a\xc2\x9b"
                      "31m"),
            "a?31m")
      << "the control sequence introducer of 8 bits";
  EXPECT_EQ(printable("a\x9b"
                      "31m caf\xe9"),
            "a\\x9B31m caf\\xE9");
  EXPECT_EQ(printable("cat\xe2\x80\xae"
                      "gpj.exe\xe2\x80\xa8"),
            "cat?gpj.exe?")
      << "right to left, line separator";
  EXPECT_EQ(printable("\xed\xa0\x80 \xc0\xaf \xf4\x90\x80\x80 \xe7\x8c"),
            "\\xED\\xA0\\x80 \\xC0\\xAF \\xF4\\x90\\x80\\x80 \\xE7\\x8C")
      << "a surrogate, longer than needed, too large, cut off";
}

}  // namespace
}  // namespace ddp
