#include "job/hangs/pulse_spread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp {
namespace {

using ::testing::ElementsAre;

// All ranks of a job, whose messages arrive with the next pulse, four times a second.
class SpreadingJob {
 public:
  explicit SpreadingJob(int size) : size_(size) {
    for (int rank = 0; rank < size; ++rank) {
      boards_.emplace_back(rank, size);
      spreads_.emplace_back(boards_.back(), rank, size);
      pulses_.emplace_back();
    }
  }

  Pulse& of(int rank) { return pulses_[at(rank)]; }
  // The silent ranks neither send nor receive.
  void run(double seconds, const std::vector<int>& silent = {}, bool leaving = false) {
    const auto is_silent = [&](int rank) { return std::find(silent.begin(), silent.end(), rank) != silent.end(); };
    struct Sent {
      int to;
      std::size_t source;
      std::vector<std::byte> bytes;
    };
    for (double end = clock_ + seconds; clock_ < end; clock_ += 0.25) {
      std::vector<Sent> sent;
      for (int rank = 0; rank < size_; ++rank) {
        if (is_silent(rank)) continue;
        ++of(rank).ticks;
        of(rank).leaving = leaving ? 1 : 0;
        if (moving_) ++of(rank).beats;
        boards_[at(rank)].note_own(of(rank), clock_);
        spreads_[at(rank)].note_own(boards_[at(rank)], leaving, clock_);
        boards_[at(rank)].note_report(rank, report(rank));
        const std::vector<int>& targets = spreads_[at(rank)].targets();
        for (std::size_t i = 0; i < targets.size(); ++i) {
          const auto message = spreads_[at(rank)].message(boards_[at(rank)], i, clock_);
          bytes_ += message.size();
          // The i-th target has this rank as its i-th source.
          if (!is_silent(targets[i])) sent.push_back({targets[i], i, {message.begin(), message.end()}});
        }
      }
      for (const Sent& each : sent) spreads_[at(each.to)].take(boards_[at(each.to)], each.source, each.bytes, clock_);
    }
  }
  void set_moving(bool moving) { moving_ = moving; }
  void all_wait() {
    for (Pulse& pulse : pulses_) pulse.waits = 1;
  }
  std::optional<Finding> find(int observer, double seconds) const {
    return boards_[at(observer)].find_culprits({seconds, seconds}, clock_);
  }
  bool all_leave(int rank) const { return spreads_[at(rank)].all_leave(boards_[at(rank)]); }
  bool long_work(int rank) const { return boards_[at(rank)].long_work(3, clock_); }
  std::string doing(int observer, int rank) const { return boards_[at(observer)].reports()[at(rank)].doing.data(); }
  // What a rank sends in a second, since the last call.
  double bytes_per_second() {
    const double seconds = clock_ - std::exchange(counted_at_, clock_);
    return static_cast<double>(std::exchange(bytes_, 0)) / seconds / size_;
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  Report report(int rank) const {
    Report report;
    report.ticks = pulses_[at(rank)].ticks;
    const std::string text = "work of rank " + std::to_string(rank);
    std::copy(text.begin(), text.end(), report.doing.begin());
    return report;
  }

  int size_;
  std::deque<PulseBoard> boards_;
  std::deque<PulseSpread> spreads_;
  std::vector<Pulse> pulses_;
  bool moving_ = true;
  double clock_ = 1000;
  double counted_at_ = 1000;
  std::size_t bytes_ = 0;
};

class Pulses : public ::testing::TestWithParam<int> {};

TEST_P(Pulses, NobodyIsToBlameWhileARankMakesProgress) {
  SpreadingJob job(GetParam());
  job.run(3);
  job.all_wait();
  job.set_moving(false);
  for (int i = 0; i < 80; ++i) {
    ++job.of(GetParam() / 2).beats;  // evaluating
    job.run(0.5);
    for (int rank = 0; rank < GetParam(); ++rank) ASSERT_FALSE(job.find(rank, 4)) << rank;
  }
}

TEST_P(Pulses, TheSilentRankIsNamedByAll) {
  const int ranks = GetParam();
  const int lost = ranks / 3;
  SpreadingJob job(ranks);
  job.run(20);
  job.all_wait();
  job.set_moving(false);
  job.run(9, {lost});
  for (int rank = 0; rank < ranks; ++rank) EXPECT_FALSE(job.find(rank, 10)) << rank;
  job.run(2, {lost});
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == lost) continue;
    const auto finding = job.find(rank, 10);
    ASSERT_TRUE(finding) << rank;
    EXPECT_EQ(finding->kind, Finding::Kind::silent);
    EXPECT_THAT(finding->ranks, ElementsAre(lost));
    EXPECT_EQ(finding->reporter, lost == 0 ? 1 : 0);
  }
}

// Also a second time, when what was known from the first is out of date.
TEST_P(Pulses, TheRankThatHangsInItsOwnWorkIsNamedByAll) {
  const int ranks = GetParam();
  SpreadingJob job(ranks);
  for (const int guilty : {ranks - 1, 1}) {
    job.set_moving(true);
    job.run(20);
    job.all_wait();
    job.of(guilty).waits = 0;
    job.set_moving(false);
    job.run(11);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto finding = job.find(rank, 10);
      ASSERT_TRUE(finding) << rank;
      EXPECT_EQ(finding->kind, Finding::Kind::stuck);
      EXPECT_THAT(finding->ranks, ElementsAre(guilty)) << rank;
      EXPECT_EQ(job.doing(rank, guilty), "work of rank " + std::to_string(guilty));
    }
    job.of(guilty).waits = 1;
    job.run(2);
    EXPECT_EQ(job.find(0, 10)->kind, Finding::Kind::cycle);
  }
}

TEST_P(Pulses, AllLearnOfLongWork) {
  SpreadingJob job(GetParam());
  job.run(4);
  EXPECT_FALSE(job.long_work(1));
  job.of(0).long_work = 1;
  job.run(4);
  for (int rank = 0; rank < GetParam(); ++rank) EXPECT_TRUE(job.long_work(rank)) << rank;
  job.of(0).long_work = 0;
  job.run(8);
  for (int rank = 0; rank < GetParam(); ++rank) EXPECT_FALSE(job.long_work(rank)) << rank;
}

TEST_P(Pulses, AllLeaveWhenAllHaveSaidSo) {
  const int ranks = GetParam();
  SpreadingJob job(ranks);
  job.run(2);
  // All but one.
  job.run(5, {ranks - 1}, /*leaving=*/true);
  for (int rank = 0; rank < ranks; ++rank) EXPECT_FALSE(job.all_leave(rank)) << rank;
  job.run(5, {}, /*leaving=*/true);
  for (int rank = 0; rank < ranks; ++rank) EXPECT_TRUE(job.all_leave(rank)) << rank;
}

INSTANTIATE_TEST_SUITE_P(Ranks, Pulses, ::testing::Values(2, 5, 16, 17, 48, 64, 100),
                         [](const auto& test) { return "On" + std::to_string(test.param); });

// About a hundred bytes to each of log2 ranks, four times a second; the tables go round during an alarm only.
TEST(PulsesOfManyRanks, AreFewBytesUnlessNothingMoves) {
  for (const int ranks : {17, 64, 128}) {
    SpreadingJob job(ranks);
    const double targets = std::ceil(std::log2(ranks));
    job.run(5);
    EXPECT_LT(job.bytes_per_second(), 4 * 128 * targets + 1) << ranks;
    job.set_moving(false);
    job.run(10);
    EXPECT_GT(job.bytes_per_second(), 4 * 128 * targets) << ranks;
    job.set_moving(true);
    job.run(10);
    (void)job.bytes_per_second();
    job.run(5);
    EXPECT_LT(job.bytes_per_second(), 4 * 128 * targets + 1) << ranks;
  }
}

TEST(PulsesOfManyRanks, GrowWithTheLogarithm) {
  for (const auto& [ranks, targets] : {std::pair{1024, 10U}, {4096, 12U}}) {
    PulseBoard board(0, ranks);
    PulseSpread spread(board, 0, ranks);
    board.note_own({.ticks = 1}, 1);
    spread.note_own(board, false, 1);
    EXPECT_EQ(spread.targets().size(), targets);
    EXPECT_LE(spread.message(board, 0, 1).size(), 128U);
  }
}

}  // namespace
}  // namespace ddp
