#include "job/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

namespace ddp {
namespace {

TEST(Signals, EachStopSignalAsksForAStop) {
  for (const auto& [number, name] : {std::pair(SIGUSR1, "SIGUSR1"), {SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}}) {
    const Signals signals;
    EXPECT_FALSE(signals.stop_requested());
    EXPECT_EQ(signals.stop_reason(), "");
    raise(number);
    EXPECT_TRUE(signals.stop_requested());
    EXPECT_EQ(signals.stop_reason(), name);
  }
}

TEST(Signals, CtrlCOnATerminalIsCalledSo) {
  const Signals signals;
  siginfo_t info{};
  info.si_signo = SIGINT;
  info.si_code = SI_KERNEL;  // as a terminal sends it
  ASSERT_EQ(::syscall(SYS_rt_sigqueueinfo, ::getpid(), SIGINT, &info), 0);
  EXPECT_EQ(signals.stop_reason(), "Ctrl-C");
}

TEST(Signals, TheFirstReasonStays) {
  const Signals signals;
  raise(SIGUSR1);
  raise(SIGTERM);
  raise(SIGINT);
  EXPECT_EQ(signals.stop_reason(), "SIGUSR1");
}

TEST(Signals, HupAsksForACheckpointOnce) {
  Signals signals;
  EXPECT_FALSE(signals.take_checkpoint_request());
  raise(SIGHUP);
  raise(SIGHUP);
  EXPECT_TRUE(signals.take_checkpoint_request());
  EXPECT_FALSE(signals.take_checkpoint_request());
  EXPECT_FALSE(signals.stop_requested());
}

TEST(SignalsDeathTest, ASecondIntLeavesAtOnce) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const Signals signals;
        raise(SIGINT);
        raise(SIGINT);
      },
      testing::ExitedWithCode(130), "");
}

TEST(Signals, HandlersFromBeforeComeBack) {
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGHUP, nullptr, &before), 0);
  { const Signals signals; }
  struct sigaction after {};
  ASSERT_EQ(sigaction(SIGHUP, nullptr, &after), 0);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
}

TEST(Signals, ThereIsOneAtATime) {
  const Signals signals;
  EXPECT_THROW(Signals(), Error);
  raise(SIGUSR1);  // the first object still works
  EXPECT_TRUE(signals.stop_requested());
}

}  // namespace
}  // namespace ddp
