#include "metrics/display/console.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <sstream>

#include "stand_ins/clock.h"

namespace ddp {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using FilePointer = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

constexpr const char* kEraseLine = "\r\x1b[K";

// Sets an environment variable for the duration of a test.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* old = ::getenv(name)) old_ = old;
    ::setenv(name, value, 1);
  }
  ~Environment() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

// A file that can be written and read back.
class Sheet {
 public:
  std::FILE* file() { return file_.get(); }
  std::string text() {
    std::string text(static_cast<std::size_t>(std::ftell(file_.get())), '\0');
    EXPECT_EQ(std::fseek(file_.get(), 0, SEEK_SET), 0);
    EXPECT_EQ(std::fread(text.data(), 1, text.size(), file_.get()), text.size());
    return text;
  }

 private:
  FilePointer file_{std::tmpfile(), std::fclose};
};

// A pseudo-terminal: what is written to file() is what the user sees.
class Screen {
 public:
  explicit Screen(unsigned short columns) : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0) throw std::runtime_error("no terminal");
    file_.reset(std::fopen(::ptsname(master_), "w"));
    resize(columns);
    termios modes{};
    ::tcgetattr(::fileno(file()), &modes);
    ::cfmakeraw(&modes);
    ::tcsetattr(::fileno(file()), TCSANOW, &modes);
  }
  ~Screen() {
    file_.reset();
    ::close(master_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  std::FILE* file() { return file_.get(); }
  void resize(unsigned short columns) const {
    const winsize size{50, columns, 0, 0};
    if (::ioctl(master_, TIOCSWINSZ, &size) != 0) throw std::runtime_error("cannot set the size");
  }
  // Returns what was written since the last call. The kernel delivers asynchronously, so a mark is sent at the end.
  std::string text() {
    constexpr char mark = '\0';
    std::fputc(mark, file());
    std::fflush(file());
    std::string text;
    while (!text.ends_with(mark)) {
      std::array<char, 4096> piece{};
      const ssize_t size = ::read(master_, piece.data(), piece.size());
      if (size <= 0) throw std::runtime_error("cannot read the terminal");
      text.append(piece.data(), static_cast<std::size_t>(size));
    }
    text.pop_back();
    return text;
  }

 private:
  int master_;
  FilePointer file_{nullptr, std::fclose};
};

TrainingProgress at_step(std::int64_t step) {
  return {.epoch = 1 + step / 100,
          .epochs = 10,
          .step = step,
          .steps = 1000,
          .loss = 0.5,
          .lr = 0.1,
          .images_per_second = 12345};
}

EpochRecord epoch_record(std::int64_t epoch) {
  return {.epoch = epoch,
          .step = epoch * 100,
          .train_loss = 0.5,
          .val_loss = 0.25,
          .val_accuracy = 0.9125,
          .lr = 0.1,
          .seconds = 12.34,
          .images_per_second = 12345};
}

class ConsoleTest : public ::testing::Test {
 protected:
  ConsoleTest() { stand_in_time = 0; }
  Environment locale_{"LC_ALL", "C"};
  Environment term_{"TERM", "xterm"};
};

TEST_F(ConsoleTest, TheHeaderIsAligned) {
  Sheet sheet;
  Console console(ProgressStyle::lines, sheet.file(), read_stand_in_time);
  console.header("ddp_train 0.1.0", {{"model", "lenet"}, {"", ""}, {"global batch", "256"}, {"", "2 x 128"}});
  EXPECT_EQ(sheet.text(),
            "ddp_train 0.1.0\n"
            "  model         lenet\n"
            "\n"
            "  global batch  256\n"
            "                2 x 128\n"
            "\n");
}

TEST_F(ConsoleTest, AFileGetsLinesAndTheTableAtTheEnd) {
  Sheet sheet;
  Console console(ProgressStyle::automatic, sheet.file(), read_stand_in_time);
  for (std::int64_t step = 1; step <= 200; ++step) {
    stand_in_time += 0.25;
    console.update(at_step(step));
    if (step % 50 == 0) console.log(at_step(step));
    if (step % 100 == 0) console.epoch(epoch_record(step / 100));
  }
  const std::vector<PhaseTotals> ranks(1);
  const std::vector<std::string> hosts = {"a"};
  console.summary({.result = "", .verdict = "", .ranks = ranks, .hosts = hosts, .full = true});
  std::istringstream text(sheet.text());
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  ASSERT_GT(lines.size(), 12);
  EXPECT_EQ(lines[0], "epoch  1/10   step    50/1,000   loss 0.5000   lr 0.1        12,345 images/s   eta 3:58");
  EXPECT_EQ(lines[2],
            "epoch  1/10   done in 12.3 s   train loss 0.5000   val loss 0.2500   val accuracy 0.9125   "
            "12,345 images/s");
  EXPECT_EQ(lines[6], "");
  EXPECT_EQ(lines[7], "epoch      step  train loss  val loss  val accuracy        lr  images/s     time");
  EXPECT_EQ(lines[8], "    1       100      0.5000    0.2500        0.9125       0.1    12,345   12.3 s");
  EXPECT_EQ(lines[9], "    2       200      0.5000    0.2500        0.9125       0.1    12,345   12.3 s");
  EXPECT_EQ(lines[10], "");
  EXPECT_THAT(lines[11], StartsWith("time by phase"));
  for (const std::string& line : lines) EXPECT_EQ(line.find('\x1b'), std::string::npos) << line;
}

TEST_F(ConsoleTest, ATerminalGetsABarRedrawnInPlace) {
  Screen screen(100);
  Console console(ProgressStyle::automatic, screen.file(), read_stand_in_time);
  console.update(at_step(0));
  EXPECT_EQ(screen.text(), "\r" + progress_bar(at_step(0), std::nullopt, 100, false) + "\x1b[K");
  console.log(at_step(0));
  EXPECT_EQ(screen.text(), "");
  stand_in_time = 10;
  console.update(at_step(500));
  EXPECT_EQ(screen.text(), "\r" + progress_bar(at_step(500), 10, 100, false) + "\x1b[K");
  screen.resize(60);
  stand_in_time = 11;
  console.update(at_step(500));
  EXPECT_EQ(screen.text(), "\r" + progress_bar(at_step(500), 11, 60, false) + "\x1b[K");
}

TEST_F(ConsoleTest, TheBarIsRedrawnAtMostTenTimesASecond) {
  Screen screen(100);
  Console console(ProgressStyle::automatic, screen.file(), read_stand_in_time);
  std::string text;
  for (std::int64_t step = 0; step < 1000; ++step) {
    stand_in_time = static_cast<double>(step) / 256;
    console.update(at_step(step));
    text += screen.text();
  }
  EXPECT_LE(count(text, "\r"), 40);
  EXPECT_GE(count(text, "\r"), 30);
}

TEST_F(ConsoleTest, TheTableGrowsAboveTheBar) {
  Screen screen(100);
  {
    Console console(ProgressStyle::automatic, screen.file(), read_stand_in_time);
    console.update(at_step(99));
    screen.text();
    console.epoch(epoch_record(1));
    EXPECT_EQ(screen.text(), std::string(kEraseLine) +
                                 "epoch      step  train loss  val loss  val accuracy        lr  images/s     time\n"
                                 "    1       100      0.5000    0.2500        0.9125       0.1    12,345   12.3 s\n");
    console.update(at_step(150));
    EXPECT_THAT(screen.text(), StartsWith("\repoch  2/10 ["));
    EpochRecord without = epoch_record(2);
    without.val_loss.reset();
    without.val_accuracy.reset();
    console.epoch(without);
    EXPECT_EQ(screen.text(), std::string(kEraseLine) +
                                 "    2       200      0.5000         -             -       0.1    12,345   12.3 s\n");
    console.update(at_step(250));
    screen.text();
  }
  EXPECT_EQ(screen.text(), kEraseLine);
}

TEST_F(ConsoleTest, StylesCanBeForced) {
  Screen screen(100);
  Console lines(ProgressStyle::lines, screen.file(), read_stand_in_time);
  lines.update(at_step(1));
  EXPECT_EQ(screen.text(), "");
  lines.log(at_step(1));
  EXPECT_THAT(screen.text(), EndsWith("eta -\n"));

  Console none(ProgressStyle::none, screen.file(), read_stand_in_time);
  none.update(at_step(1));
  none.log(at_step(1));
  EXPECT_EQ(screen.text(), "");
  none.epoch(epoch_record(1));
  EXPECT_THAT(screen.text(), StartsWith("epoch      step  train loss"));

  const Environment columns("COLUMNS", "70");
  Sheet sheet;
  Console bar(ProgressStyle::bar, sheet.file(), read_stand_in_time);
  bar.update(at_step(1));
  EXPECT_EQ(sheet.text(), "\r" + progress_bar(at_step(1), std::nullopt, 70, false) + "\x1b[K");
}

TEST_F(ConsoleTest, ADumbTerminalGetsLines) {
  const Environment term("TERM", "dumb");
  Screen screen(100);
  Console console(ProgressStyle::automatic, screen.file(), read_stand_in_time);
  console.update(at_step(1));
  EXPECT_EQ(screen.text(), "");
}

TEST_F(ConsoleTest, TheSummaryNamesTheSlowestRank) {
  Sheet sheet;
  Console console(ProgressStyle::none, sheet.file(), read_stand_in_time);
  std::vector<PhaseTotals> ranks(2);
  ranks[0][Phase::backward] = 1;
  ranks[1][Phase::backward] = 3;
  const std::vector<std::string> hosts = {"node-a", "node-b"};
  console.summary({.result = "", .verdict = "", .ranks = ranks, .hosts = hosts});
  EXPECT_THAT(sheet.text(),
              EndsWith("slowest rank: 1 on node-b, 1.0 s above the mean, 50% of the wall time (backward)\n"));
}

TEST_F(ConsoleTest, HeadersWrapUnderTheirColumnOnATerminalOnly) {
  const Environment plain("NO_COLOR", "1");
  const std::string words = "one two three four five six seven eight nine ten eleven";
  Screen screen(40);
  Console console(ProgressStyle::automatic, screen.file(), read_stand_in_time);
  console.header("ddp_train", {{"model", words}});
  EXPECT_EQ(screen.text(), "ddp_train\n  model  one two three four five six\n         seven eight nine ten eleven\n\n");
  Sheet sheet;
  Console file(ProgressStyle::automatic, sheet.file(), read_stand_in_time);
  file.header("ddp_train", {{"model", words}});
  EXPECT_EQ(sheet.text(), "ddp_train\n  model  " + words + "\n\n");
}

TEST_F(ConsoleTest, ResultsAreShownFirstAndInColourOnATerminalOnly) {
  const std::vector<PhaseTotals> ranks(1);
  const RunSummary summary{
      .result = "accuracy 98 %", .verdict = "input-bound", .healthy = false, .ranks = ranks, .hosts = {}};
  Screen screen(100);
  Sheet sheet;
  {
    const Environment colours("NO_COLOR", "");
    Console(ProgressStyle::none, screen.file(), read_stand_in_time).summary(summary);
    Console(ProgressStyle::none, sheet.file(), read_stand_in_time).summary(summary);
  }
  EXPECT_THAT(screen.text(),
              StartsWith("\n\x1b[1;32maccuracy 98 %\x1b[0m\n\n\x1b[33minput-bound\x1b[0m\n\ntime by phase"));
  EXPECT_THAT(sheet.text(), StartsWith("\naccuracy 98 %\n\ninput-bound\n\ntime by phase"));
  const Environment none("NO_COLOR", "1");
  Console(ProgressStyle::none, screen.file(), read_stand_in_time).summary(summary);
  EXPECT_THAT(screen.text(), StartsWith("\naccuracy 98 %\n"));
}

TEST_F(ConsoleTest, Utf8BarsAreDrawnInUtf8LocalesOnly) {
  struct Case {
    const char* all;
    const char* ctype;
    const char* lang;
    bool utf8;
  };
  for (const Case& locale :
       {Case{"", "", "", false}, Case{"", "", "C.UTF-8", true}, Case{"C", "", "C.UTF-8", false},
        Case{"en_US.utf8", "C", "C", true}, Case{"", "de_DE.UTF-8", "C", true}, Case{"", "POSIX", "C.UTF-8", false}}) {
    const Environment all("LC_ALL", locale.all);
    const Environment ctype("LC_CTYPE", locale.ctype);
    const Environment lang("LANG", locale.lang);
    EXPECT_EQ(locale_is_utf8(), locale.utf8) << locale.all << "|" << locale.ctype << "|" << locale.lang;
    Screen screen(100);
    Console console(ProgressStyle::automatic, screen.file(), read_stand_in_time);
    console.update(at_step(500));
    EXPECT_EQ(count(screen.text(), "█") > 0, locale.utf8);
  }
}

}  // namespace
}  // namespace ddp
