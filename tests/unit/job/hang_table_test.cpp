#include "job/hangs/hang_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status/position.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

// A job of which every rank waits in the reduction of step 7.
std::vector<RankState> waiting_job(int size) {
  std::vector<RankState> ranks(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    RankState& state = ranks[static_cast<std::size_t>(rank)];
    state.rank = rank;
    state.host = "n1";
    state.process = 100 + rank;
    state.pulse = {.waits = 1, .peer = (rank + 1) % size, .step = 7, .bucket = 2};
    state.pulse.phase = static_cast<std::int32_t>(WorkPhase::reduction);
    copy_text(state.report.doing, "send_receive");
  }
  return ranks;
}

// Rank 1 makes no progress in this phase, and does not wait.
RankState stuck_in(WorkPhase phase, bool file_call) {
  std::vector<RankState> ranks = waiting_job(3);
  ranks[1].pulse.waits = 0;
  ranks[1].pulse.phase = static_cast<std::int32_t>(phase);
  ranks[1].report.file_call = file_call ? 1 : 0;
  mark_suspects(ranks, {.kind = Finding::Kind::stuck, .ranks = {1}});
  EXPECT_THAT(ranks[0].suspect, IsEmpty());
  EXPECT_THAT(ranks[2].suspect, IsEmpty());
  return ranks[1];
}

TEST(HangTableTest, AStuckRankIsWhereItsPhaseIs) {
  EXPECT_EQ(stuck_in(WorkPhase::data, false).suspect, "in its loader");
  EXPECT_EQ(stuck_in(WorkPhase::data, true).suspect, "in a file system call");
  EXPECT_EQ(stuck_in(WorkPhase::backward, false).suspect, "in a kernel");
  EXPECT_EQ(stuck_in(WorkPhase::device, false).suspect, "in a kernel");
  EXPECT_EQ(stuck_in(WorkPhase::set_up, false).suspect, "not arrived");
  EXPECT_EQ(suspect_text(stuck_in(WorkPhase::data, true)),
            "rank 1 on host n1 (process 101) is in a file system call, send_receive (step 7, data, bucket 2)");
}

TEST(HangTableTest, ASilentRankIsStoppedGoneOrOutOfReach) {
  std::vector<RankState> ranks = waiting_job(4);
  for (RankState& each : ranks) each.seconds_silent = 30;
  ranks[0].seconds_silent = 0;
  ranks[1].report.stopped = 1;
  ranks[2].gone = true;
  mark_suspects(ranks, {.kind = Finding::Kind::silent, .ranks = {1, 2, 3}});
  EXPECT_THAT(ranks[0].suspect, IsEmpty());
  EXPECT_EQ(ranks[1].suspect, "stopped by a signal");
  EXPECT_THAT(ranks[2].suspect, HasSubstr("has ended"));
  EXPECT_THAT(ranks[3].suspect, HasSubstr("host cannot be reached"));
}

TEST(HangTableTest, OfRanksThatAllWaitTheOneElsewhereIsMarked) {
  const Finding cycle{.kind = Finding::Kind::cycle, .ranks = {0, 1, 2}};
  std::vector<RankState> ranks = waiting_job(3);
  ranks[2].pulse.leaving = 1;
  mark_suspects(ranks, cycle);
  EXPECT_EQ(ranks[2].suspect, "not arrived: it has left the run");
  copy_text(ranks[2].report.doing, std::string(kLeavingAfter) + "step 3 (epoch 1): the learning rate is not finite");
  mark_suspects(ranks, cycle);
  EXPECT_EQ(ranks[2].suspect,
            "not arrived: it has left the run after 'step 3 (epoch 1): the learning rate is not finite'");
  EXPECT_THAT(ranks[0].suspect, IsEmpty());

  ranks = waiting_job(3);
  ranks[0].pulse.step = 6;
  mark_suspects(ranks, cycle);
  EXPECT_EQ(ranks[0].suspect, "not arrived at step 7");

  ranks = waiting_job(3);
  ranks[1].pulse.phase = static_cast<std::int32_t>(WorkPhase::evaluation);
  mark_suspects(ranks, cycle);
  EXPECT_EQ(ranks[1].suspect, "not arrived: the others are in reduction");

  ranks = waiting_job(3);
  mark_suspects(ranks, cycle);  // a message was lost
  for (const RankState& each : ranks) EXPECT_THAT(each.suspect, IsEmpty());
}

TEST(HangTableTest, EveryRankHasALine) {
  std::vector<RankState> ranks = waiting_job(100);
  ranks[99].report.stopped = 1;
  ranks[99].seconds_silent = 9;
  mark_suspects(ranks, {.kind = Finding::Kind::silent, .ranks = {99}});
  const std::string all = hang_table(ranks);
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 101);
  EXPECT_THAT(all, HasSubstr("->    99  n1        199     7  reduction       2"));
  EXPECT_THAT(all, HasSubstr("send_receive, for rank 1"));
  const std::string few = short_hang_table(ranks, 3);
  EXPECT_EQ(std::count(few.begin(), few.end(), '\n'), 5);
  EXPECT_THAT(few, HasSubstr("->    99"));
  EXPECT_THAT(few, HasSubstr("and 97 more ranks"));
}

TEST(HangTableTest, TheTableIsWrittenToAnExistingFolderOnly) {
  const TemporaryFolder folder;
  set_hang_folder(folder.path() / "absent");
  EXPECT_EQ(write_hang_table("table", 0), "");
  set_hang_folder(folder.path());
  const std::string path = write_hang_table("table", 0);
  EXPECT_THAT(path, MatchesRegex(".*/hang-[0-9]{8}-[0-9]{6}.txt"));
  EXPECT_EQ(read_text(path, ExitCode::data), "table");
  set_hang_folder({});
  EXPECT_EQ(write_hang_table("table", 0), "");
}

}  // namespace
}  // namespace ddp
