#include "job/hangs/thread_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

namespace ddp {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ThreadStatesTest, NamedThreadsAreShownWithTheirSystemCalls) {
  std::array<int, 2> pipe_ends{};
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  std::thread reader([&] {
    prctl(PR_SET_NAME, "reader");
    char byte = 0;
    EXPECT_EQ(read(pipe_ends[0], &byte, 1), 1);
  });
  ThreadStates states;
  for (int i = 0; i < 100 && !states.file_call; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    states = thread_states(getpid());
  }
  EXPECT_THAT(states.text, StartsWith("main R"));
  EXPECT_THAT(states.text, HasSubstr("reader S read"));
  EXPECT_TRUE(states.file_call);
  ASSERT_EQ(write(pipe_ends[1], "x", 1), 1);
  reader.join();
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST(ThreadStatesTest, AProcessThatIsGoneHasNone) {
  const ThreadStates states = thread_states(999999999);
  EXPECT_EQ(states.text, "");
  EXPECT_FALSE(states.file_call);
}

TEST(ThreadStatesTest, SystemCallsHaveNames) {
  EXPECT_EQ(system_call_name(SYS_fsync), "fsync");
  EXPECT_EQ(system_call_name(SYS_futex), "futex");
  EXPECT_EQ(system_call_name(-1), "");
}

}  // namespace
}  // namespace ddp
