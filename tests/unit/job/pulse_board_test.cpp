#include "job/hangs/pulse_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace ddp {
namespace {

using ::testing::ElementsAre;

// What comes directly from each rank.
void merge(PulseBoard& board, const std::vector<Pulse>& pulses, double clock) {
  for (std::size_t rank = 0; rank < pulses.size(); ++rank)
    board.merge(static_cast<int>(rank), pulses[rank], 0, 0, clock);
}

// A job whose ranks receive each other's pulses immediately, seen from one of them.
class Job {
 public:
  Job(int size, int observer)
      : own_(static_cast<std::size_t>(observer)), board_(observer, size), pulses_(static_cast<std::size_t>(size)) {}

  Pulse& of(int rank) { return pulses_[static_cast<std::size_t>(rank)]; }
  // All ranks except the silent ones send a pulse once a second.
  void run(double seconds, const std::vector<int>& silent = {}) {
    for (double end = clock_ + seconds; clock_ < end; clock_ += 1) {
      for (int rank = 0; rank < static_cast<int>(pulses_.size()); ++rank) {
        if (std::find(silent.begin(), silent.end(), rank) == silent.end()) ++of(rank).ticks;
      }
      board_.note_own(pulses_[own_], clock_);
      merge(board_, pulses_, clock_);
    }
  }
  void step() {
    for (Pulse& pulse : pulses_) ++pulse.beats;
  }
  void wait_for(int rank, int peer) {
    of(rank).waits = 1;
    of(rank).peer = peer;
  }
  std::optional<Finding> find(double seconds) const { return board_.find_culprits({seconds, seconds}, clock_); }

 private:
  std::size_t own_;
  PulseBoard board_;
  std::vector<Pulse> pulses_;
  double clock_ = 1000;
};

TEST(PulseBoardTest, NobodyIsToBlameWhileAnyRankMakesProgress) {
  Job job(3, 0);
  job.wait_for(0, 2);
  job.wait_for(1, 2);
  for (int i = 0; i < 30; ++i) {
    ++job.of(2).beats;  // busy, e.g. evaluating
    job.run(5);
    EXPECT_FALSE(job.find(10)) << i;
  }
}

// Four ranks in a ring, the third of which has stopped: its neighbours wait for it, and the others wait for them.
TEST(PulseBoardTest, TheSilentRankIsToBlameAndNotThoseThatWait) {
  Job job(4, 0);
  job.step();
  job.run(3);
  job.wait_for(0, 3);
  job.wait_for(1, 0);
  job.wait_for(3, 2);
  job.run(20, {2});
  EXPECT_FALSE(job.find(30));
  const auto finding = job.find(10);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, Finding::Kind::silent);
  EXPECT_THAT(finding->ranks, ElementsAre(2));
  EXPECT_EQ(finding->reporter, 0);
}

TEST(PulseBoardTest, TheLowestRankThatIsHeardReports) {
  Job job(4, 3);
  job.run(3);
  job.run(20, {0, 1});
  const auto finding = job.find(10);
  ASSERT_TRUE(finding);
  EXPECT_THAT(finding->ranks, ElementsAre(0, 1));
  EXPECT_EQ(finding->reporter, 2);
}

TEST(PulseBoardTest, ARankThatHangsInItsOwnWorkIsToBlame) {
  Job job(3, 0);
  job.step();
  job.run(3);
  job.wait_for(0, 1);
  job.wait_for(1, 2);
  job.run(20);
  const auto finding = job.find(10);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, Finding::Kind::stuck);
  EXPECT_THAT(finding->ranks, ElementsAre(2));
  EXPECT_EQ(finding->reporter, 0);
  job.wait_for(2, 0);
  job.run(2);
  EXPECT_EQ(job.find(10)->kind, Finding::Kind::cycle);
}

TEST(PulseBoardTest, OldNewsIsNoNews) {
  PulseBoard board(0, 2);
  board.note_own({.ticks = 1}, 10);
  std::vector<Pulse> table(2);
  table[1] = {.ticks = 5, .beats = 7};
  merge(board, table, 11);
  EXPECT_EQ(board.progress_elsewhere(), 11);
  table[1] = {.ticks = 4, .beats = 6};
  merge(board, table, 12);
  EXPECT_EQ(board.table()[1].ticks, 5U);
  EXPECT_EQ(board.progress_elsewhere(), 11);
  // Reports of others about this rank are ignored.
  table[0] = {.ticks = 99};
  merge(board, table, 12);
  EXPECT_EQ(board.table()[0].ticks, 1U);
}

TEST(PulseBoardTest, WorkThatTakesLongIsKnownWhileItsRankIsHeard) {
  PulseBoard board(0, 2);
  board.note_own({.ticks = 1}, 10);
  std::vector<Pulse> table(2);
  table[1] = {.ticks = 1, .beats = 1, .long_work = 1};
  merge(board, table, 11);
  EXPECT_TRUE(board.long_work(5, 12));
  EXPECT_FALSE(board.long_work(5, 17));
  EXPECT_EQ(board.seconds_silent(1, 17), 6);
  EXPECT_EQ(board.seconds_still(17), 6);
  EXPECT_EQ(board.seconds_stuck(0, 17), 7);
}

TEST(PulseBoardTest, TheNewestReportCounts) {
  PulseBoard board(0, 3);
  board.note_report(1, {.ticks = 3, .stopped = 1});
  board.note_report(1, {.ticks = 2});
  EXPECT_EQ(board.reports()[1].ticks, 3U);
  EXPECT_EQ(board.reports()[1].stopped, 1);
}

TEST(PulseBoardTest, NewsAreAsOldAsTheySay) {
  PulseBoard board(0, 3);
  board.note_own({.ticks = 1}, 10);
  board.merge(1, {.ticks = 5, .beats = 7}, 2, 3, 20);
  EXPECT_EQ(board.seconds_silent(1, 20), 2);
  EXPECT_EQ(board.seconds_stuck(1, 20), 3);
  EXPECT_EQ(board.progress_elsewhere(), 17);
}

TEST(PulseBoardTest, AllLeaveWhenAllHaveSaidSo) {
  PulseBoard board(1, 2);
  board.note_own({.ticks = 1, .leaving = 1}, 1);
  EXPECT_FALSE(board.all_leave());
  std::vector<Pulse> table(2);
  table[0] = {.ticks = 1, .leaving = 1};
  merge(board, table, 2);
  EXPECT_TRUE(board.all_leave());
}

}  // namespace
}  // namespace ddp
