#include "base/status/heartbeat.h"

#include <gtest/gtest.h>

#include <thread>

namespace ddp {
namespace {

TEST(HeartbeatTest, TheInnermostActivityOfTheMainThreadCounts) {
  const std::thread::id self = std::this_thread::get_id();
  EXPECT_EQ(what_is_done(self).text, "");
  const Activity outer("training");
  EXPECT_EQ(what_is_done(self).text, "training");
  {
    const RankWait wait("all_reduce", 3);
    EXPECT_TRUE(what_is_done(self).waits_for_ranks);
    EXPECT_EQ(what_is_done(self).rank, 3);
    EXPECT_EQ(what_is_done(self).text, "all_reduce");
  }
  EXPECT_FALSE(what_is_done(self).waits_for_ranks);
  EXPECT_EQ(what_is_done(self).text, "training");
}

// While the main thread waits for a batch, the loader thread knows which file is being read.
TEST(HeartbeatTest, AHelperThreadKnowsBetterWhatIsWaitedFor) {
  const std::thread::id self = std::this_thread::get_id();
  const Activity outer("training");
  std::thread([&] {
    const Activity reading("reading 7.jpg");
    EXPECT_EQ(what_is_done(self).text, "reading 7.jpg");
    const RankWait wait("ring", 2);  // overlaps backward, so the main thread is not the one waiting
    EXPECT_EQ(what_is_done(self).text, "reading 7.jpg");
    EXPECT_FALSE(what_is_done(self).waits_for_ranks);
  }).join();
  const RankWait sum("the sum of gradients");
  std::thread([&] {
    const RankWait wait("ring", 2);
    EXPECT_EQ(what_is_done(self).rank, 2);
    EXPECT_TRUE(what_is_done(self).waits_for_ranks);
  }).join();
}

TEST(HeartbeatTest, TheKindOfAnActivityIsKnown) {
  const std::thread::id self = std::this_thread::get_id();
  const LongActivity outer("evaluating");
  EXPECT_TRUE(what_is_done(self).long_work);
  EXPECT_FALSE(what_is_done(self).file_call);
  {
    const FileActivity reading("reading 7.jpg");
    EXPECT_TRUE(what_is_done(self).file_call);
    EXPECT_TRUE(what_is_done(self).long_work) << "within the evaluation";
  }
  std::thread([&] {
    const LongActivity other("writing a checkpoint");
    const Activity work("training");
    EXPECT_TRUE(what_is_done(self).long_work);
    EXPECT_FALSE(what_is_done(std::thread::id()).long_work) << "of the main thread only";
  }).join();
}

TEST(HeartbeatTest, BeatsAreCounted) {
  const std::uint64_t before = heartbeats();
  heartbeat();
  EXPECT_EQ(heartbeats(), before + 1);
}

TEST(HeartbeatTest, TheClockOfWaitsIsTheWatchdogsWhileThereIsOne) {
  EXPECT_LT(progress_elsewhere(), waiting_clock() - 1e6);
  set_waiting_clock(5);
  EXPECT_EQ(waiting_clock(), 5);
  note_progress_elsewhere();
  EXPECT_EQ(progress_elsewhere(), 5);
  drop_waiting_clock();
  EXPECT_NE(waiting_clock(), 5);
}

}  // namespace
}  // namespace ddp
