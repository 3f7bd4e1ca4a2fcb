#include "train/parallel/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "base/balanced_counts.h"
#include "comm/transport/threads.h"

namespace ddp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

double longest(const std::vector<std::int64_t>& counts, const std::vector<double>& speeds) {
  double seconds = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    seconds = std::max(seconds, static_cast<double>(counts[rank]) / speeds[rank]);
  }
  return seconds;
}

TEST(BalanceTest, ShardsAreDividedBySpeed) {
  EXPECT_THAT(balanced_counts(12, std::vector{1.0, 1.0}), ElementsAre(6, 6));
  EXPECT_THAT(balanced_counts(12, std::vector{2.0, 1.0}), ElementsAre(8, 4));
  EXPECT_THAT(balanced_counts(4, std::vector{1.0, 1e-6, 1.0}), ElementsAre(2, 1, 1));
}

TEST(BalanceTest, NoOtherDivisionIsFaster) {
  std::mt19937 random(std::random_device{}());
  std::uniform_real_distribution<double> speed(1, 100);
  for (int trial = 0; trial < 200; ++trial) {
    const std::int64_t shards = 3 + static_cast<std::int64_t>(random() % 15);
    const std::vector<double> speeds = {speed(random), speed(random), speed(random)};
    const std::vector<std::int64_t> counts = balanced_counts(shards, speeds);
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), shards);
    for (std::int64_t a = 1; a < shards; ++a) {
      for (std::int64_t b = 1; a + b < shards; ++b) {
        EXPECT_LE(longest(counts, speeds), longest({a, b, shards - a - b}, speeds) + 1e-12);
      }
    }
  }
}

// Two ranks of which the second takes twice as long for a shard.
TEST(BalanceTest, ASlowRankGivesShardsAwayOnce) {
  run_as_threads(2, [](Communicator& ranks) {
    Balance balance(12, 2);
    const double per_shard = ranks.rank() == 0 ? 0.01 : 0.02;
    std::vector<std::vector<std::int64_t>> changes;
    for (int step = 0; step < 100; ++step) {
      const double own = per_shard * static_cast<double>(balance.counts()[static_cast<std::size_t>(ranks.rank())]);
      balance.note_step(own);
      if (!balance.due()) continue;
      if (const auto counts = balance.decide(ranks)) changes.push_back(*counts);
    }
    EXPECT_THAT(changes, ElementsAre(ElementsAre(8, 4)));
    EXPECT_THAT(balance.summary(), HasSubstr("8, 4 in place of 6, 6"));
    EXPECT_THAT(balance.summary(), HasSubstr("80.0 ms in a step in place of 120.0 ms, 1.50 times as fast"));
  });
}

TEST(BalanceTest, NoiseMovesNothing) {
  run_as_threads(3, [](Communicator& ranks) {
    Balance balance(12, 3);
    for (int step = 0; step < 100; ++step) {
      balance.note_step(0.04 + 0.002 * ranks.rank());
      if (!balance.due()) continue;
      EXPECT_FALSE(balance.decide(ranks));
    }
    EXPECT_THAT(balance.summary(), HasSubstr("no logical shards were moved"));
  });
}

}  // namespace
}  // namespace ddp
