#include "metrics/logs/log_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "support/errors.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

using testing::HasSubstr;

// A limit of the size of files stands for a full disk: a write succeeds in part.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    (void)std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

TEST(LogFileTest, KeepsWhatCannotBeWritten) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "log";
  LogFile log(File(path, File::Mode::append, ExitCode::checkpoint));
  log.write("first line\n");
  {
    const FullDisk full(15);
    log.write("second line\n");
    log.write("third line\n");
    EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { log.sync(); }), HasSubstr("cannot write " + path.string()));
  }
  log.sync();
  EXPECT_EQ(read_text(path, ExitCode::checkpoint), "first line\nsecond line\nthird line\n");
  log.write("fourth line\n");
  EXPECT_EQ(read_text(path, ExitCode::checkpoint), "first line\nsecond line\nthird line\nfourth line\n");
}

TEST(LogFileTest, TriesAgainAfterASecond) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "log";
  LogFile log(File(path, File::Mode::append, ExitCode::checkpoint));
  {
    const FullDisk full(2);
    log.write("first\n");
  }
  log.write("second\n");
  EXPECT_EQ(read_text(path, ExitCode::checkpoint), "fi") << "tried too early";
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  log.write("third\n");
  EXPECT_EQ(read_text(path, ExitCode::checkpoint), "first\nsecond\nthird\n");
}

}  // namespace
}  // namespace ddp
