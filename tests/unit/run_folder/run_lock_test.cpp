#include "run_folder/run_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/status/heartbeat.h"
#include "run_folder/lock_owner.h"
#include "support/child.h"
#include "support/errors.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Like the real timing, but faster.
constexpr LockTiming kFast{.look = 0.02, .renew = 0.05, .stale = 0.6, .leaving = 0.2};

class RunLockTest : public ::testing::Test {
 protected:
  std::string refusal() {
    return error_text(ExitCode::checkpoint, [&] { const RunLock lock(run_, kFast); });
  }
  void put(const std::string& text) { replace_file(path_, text, ExitCode::internal); }
  // The folder contains nothing except, possibly, the lock file.
  void expect_tidy() {
    for (const auto& entry : fs::directory_iterator(run_)) EXPECT_EQ(entry.path(), path_);
  }
  // Leaves a lock of a process that has exited.
  void leave_lock() {
    fs::create_directories(run_);
    ASSERT_EQ(run_in_child([&] {
                const RunLock lock(run_, kFast);
                ::_exit(7);
              }),
              7);
    ASSERT_TRUE(fs::exists(path_));
  }
  // An owner like this process, but on another host.
  static LockOwner elsewhere() {
    LockOwner owner = this_process();
    owner.host = "elsewhere";
    return owner;
  }

  TemporaryFolder folder_;
  fs::path run_ = folder_.path() / "runs" / "a";
  fs::path path_ = run_ / kLockFile;
};

// For example, if MPI_Abort ends the process; a lock that another process has taken over stays.
TEST_F(RunLockTest, AProcessThatEndsWithoutDestructorsLeavesNone) {
  for (const bool taken : {false, true}) {
    fs::create_directories(run_);
    EXPECT_EQ(run_in_child([&] {
                RunLock lock(run_, kFast);
                if (taken) put(to_text(elsewhere()));
                perform_last_acts();
                lock.check_held_now();
                ::_exit(7);
              }),
              7);
    EXPECT_EQ(fs::exists(path_), taken);
  }
}

// Checks and renewals of the lock must not hide a run that hangs.
TEST_F(RunLockTest, LooksAreNoHeartbeats) {
  RunLock lock(run_, kFast);
  const std::uint64_t before = heartbeats();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  lock.check_held();
  EXPECT_EQ(heartbeats(), before);
}

// Note [Waiting for a lock is no hang] in run_lock.cpp.
TEST_F(RunLockTest, TheWaitForASignOfLifeIsProgress) {
  fs::create_directories(run_);
  put(to_text(elsewhere()));
  std::atomic<bool> acquired{false};
  std::thread waiting([&] {
    const RunLock lock(run_, kFast);
    acquired = true;
  });
  std::uint64_t beats = heartbeats();
  double last = now();
  double silence = 0;
  while (!acquired) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    silence = std::max(silence, now() - last);
    if (heartbeats() != std::exchange(beats, heartbeats())) last = now();
  }
  waiting.join();
  EXPECT_LT(silence, kFast.stale) << "the whole wait is silent";
}

// As when the watchdog or a request to stop ends it.
TEST_F(RunLockTest, AProcessThatEndsWhileItWaitsLeavesNothing) {
  fs::create_directories(run_);
  const std::string theirs = to_text(elsewhere());
  put(theirs);
  EXPECT_EQ(run_in_child([&] {
              std::thread ending([] {
                std::this_thread::sleep_for(std::chrono::duration<double>(kFast.stale / 3));
                perform_last_acts();
                std::this_thread::sleep_for(std::chrono::duration<double>(kFast.stale));
                ::_exit(7);
              });
              const RunLock lock(run_, kFast);
              ::_exit(0);
            }),
            7);
  expect_tidy();
  EXPECT_EQ(read_text(path_, ExitCode::internal), theirs);
}

TEST_F(RunLockTest, TheOwnerRemovesWhatKilledProcessesLeft) {
  {
    const RunLock lock(run_, kFast);
    replace_file(run_ / (".lock-" + name_of(this_process())), "", ExitCode::internal);  // of one that lives
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const RunLock second(run_, kFast);
      ::_exit(0);
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(kFast.leaving / 2));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_EQ(std::distance(fs::directory_iterator(run_), {}), 3);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(run_), {}), 1);
}

TEST_F(RunLockTest, OneAtATime) {
  {
    const RunLock lock(run_, kFast);
    expect_tidy();
    EXPECT_THAT(refusal(), AllOf(HasSubstr(run_.string() + " is in use by process " + std::to_string(::getpid())),
                                 HasSubstr("use another --output (%j")));
    expect_tidy();
  }
  EXPECT_FALSE(fs::exists(run_)) << "a folder that was made for nothing stays";
  EXPECT_TRUE(fs::exists(run_.parent_path()));
  const RunLock again(run_, kFast);
  replace_file(run_ / "a.txt", "", ExitCode::internal);
}

TEST_F(RunLockTest, AFolderWithContentStays) {
  fs::create_directories(run_);
  { const RunLock lock(run_, kFast); }
  EXPECT_TRUE(fs::is_empty(run_));
  {
    const RunLock lock(run_, kFast);
    replace_file(run_ / "a.txt", "", ExitCode::internal);
  }
  EXPECT_TRUE(fs::exists(run_ / "a.txt"));
}

TEST_F(RunLockTest, AProcessThatIsGoneHoldsNothing) {
  leave_lock();
  const double begin = now();
  RunLock lock(run_, kFast);
  EXPECT_LT(now() - begin, kFast.stale) << "it is not waited for";
  expect_tidy();
  lock.check_held_now();
}

// A process with the same ID that started later is another process.
TEST_F(RunLockTest, ANumberThatWasUsedAgainHoldsNothing) {
  fs::create_directories(run_);
  LockOwner owner = this_process();
  owner.started += 1;
  put(to_text(owner));
  RunLock lock(run_, kFast);
  lock.check_held_now();
}

TEST_F(RunLockTest, AStoppedProcessHoldsItAndAnEndedOneDoesNot) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const RunLock lock(run_, kFast);
    ::pause();
    ::_exit(0);
  }
  while (!fs::exists(path_)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_EQ(::kill(child, SIGSTOP), 0);
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * kFast.stale));
  EXPECT_THAT(refusal(), HasSubstr("is in use by process " + std::to_string(child)));
  // Killed, but still a zombie.
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  { const RunLock lock(run_, kFast); }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

// A process that ends during the check is given time.
TEST_F(RunLockTest, AProcessThatIsEndingIsGivenTime) {
  auto held = std::make_unique<RunLock>(run_, kFast);
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::duration<double>(kFast.leaving / 2));
    held.reset();
  });
  RunLock lock(run_, kFast);
  ending.join();
  lock.check_held_now();
}

TEST_F(RunLockTest, AnotherHostLivesAsLongAsItRenewsTheTime) {
  fs::create_directories(run_);
  put(to_text(elsewhere()));
  std::atomic<bool> alive{true};
  std::thread renewing([&] {
    const std::array<timespec, 2> times = {timespec{0, UTIME_NOW}, timespec{0, UTIME_NOW}};
    while (alive) {
      ::utimensat(AT_FDCWD, path_.c_str(), times.data(), 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  EXPECT_THAT(refusal(), HasSubstr("is in use by process " + std::to_string(::getpid()) + " on host elsewhere"));
  alive = false;
  renewing.join();
  const double begin = now();
  RunLock lock(run_, kFast);
  EXPECT_GT(now() - begin, kFast.stale / 2);
  lock.check_held_now();
}

TEST_F(RunLockTest, TheOwnerRenewsTheTime) {
  const RunLock lock(run_, kFast);
  const auto before = fs::last_write_time(path_);
  for (int tries = 0; tries < 200 && fs::last_write_time(path_) == before; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_GT(fs::last_write_time(path_), before);
}

TEST_F(RunLockTest, ADamagedLockIsGoneAfterAWhile) {
  fs::create_directories(run_);
  for (const char* text : {"", "garbage", "{\"host\": 3}"}) {
    put(text);
    RunLock lock(run_, kFast);
    lock.check_held_now();
  }
}

TEST_F(RunLockTest, WhatIsNoFileIsAnErrorAtOnce) {
  fs::create_directories(run_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0666), 0);
  EXPECT_THAT(refusal(), HasSubstr("run.lock is not a regular file; remove it"));
  fs::remove(path_);
  fs::create_symlink("nowhere", path_);
  EXPECT_THAT(refusal(), HasSubstr("run.lock is not a regular file; remove it"));
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_THAT(refusal(), HasSubstr("run.lock is not a regular file; remove it"));
}

TEST_F(RunLockTest, AFolderThatVanishesIsNoticed) {
  const fs::path moved = folder_.path() / "moved";
  for (const bool moves : {true, false}) {
    RunLock lock(run_, kFast);
    if (moves) {
      fs::rename(run_, moved);
    } else {
      fs::remove_all(run_);
    }
    EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { lock.check_held_now(); }),
                HasSubstr(run_.string() + " was deleted, moved or replaced while the run was writing to it"));
    EXPECT_THROW(lock.check_held(), Error);
  }
  // Detected by the background thread.
  RunLock lock(run_, kFast);
  lock.check_held();
  fs::remove_all(run_);
  std::this_thread::sleep_for(std::chrono::duration<double>(20 * kFast.look));
  EXPECT_THROW(lock.check_held(), Error);
}

TEST_F(RunLockTest, ALockThatWasTakenOverIsNoticedAndLeftAlone) {
  {
    RunLock lock(run_, kFast);
    put(to_text(elsewhere()));
    EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { lock.check_held_now(); }),
                AllOf(HasSubstr("was taken over by process"), HasSubstr("on host elsewhere")));
  }
  EXPECT_TRUE(fs::exists(path_));
}

// Many processes compete for a stale lock: exactly one holds it at a time.
TEST_F(RunLockTest, OneOfManyTakesOver) {
  for (int round = 0; round < 10; ++round) {
    leave_lock();
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    std::vector<pid_t> children;
    for (int child = 0; child < 8; ++child) {
      const pid_t pid = ::fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) {
        try {
          const RunLock lock(run_, kFast);
          (void)!::write(pipe[1], "+", 1);
          std::this_thread::sleep_for(std::chrono::duration<double>(3 * kFast.leaving));
          (void)!::write(pipe[1], "-", 1);
          ::_exit(0);  // without releasing the lock
        } catch (const Error&) {
          ::_exit(8);
        }
      }
      children.push_back(pid);
    }
    ::close(pipe[1]);
    int held = 0;
    int taken = 0;
    for (char event = 0; ::read(pipe[0], &event, 1) == 1;) {
      held += event == '+' ? 1 : -1;
      taken += event == '+' ? 1 : 0;
      EXPECT_LE(held, 1);
    }
    ::close(pipe[0]);
    EXPECT_GE(taken, 1);
    for (const pid_t pid : children) ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  }
}

// Claims and takeovers killed at any instant never block the folder.
TEST_F(RunLockTest, KilledClaimsAreInNobodysWay) {
  std::uint64_t delay = 0;
  for (int round = 0; round < 100; ++round) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      for (;;) const RunLock lock(run_, kFast);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(delay += 97));
    ::kill(pid, SIGKILL);
    ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
    const double begin = now();
    RunLock lock(run_, kFast);
    lock.check_held_now();
    EXPECT_LT(now() - begin, kFast.stale);
    expect_tidy();
  }
}

TEST(LockOwner, TextsComeBack) {
  const LockOwner owner = this_process();
  EXPECT_EQ(parse_owner(to_text(owner)), owner);
  EXPECT_TRUE(lives(owner));
  EXPECT_TRUE(same_machine(owner, this_process()));
  EXPECT_NE(owner.token, this_process().token);
  LockOwner other = owner;
  other.pid_namespace = "pid:[1]";
  EXPECT_FALSE(same_machine(owner, other)) << "another container counts its processes for itself";
}

}  // namespace
}  // namespace ddp
