#include "train/step/batch_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "data/pipeline/sample_key.h"

namespace ddp {
namespace {

BatchPlan plan_for(std::int64_t samples, std::int64_t global_batch, int ranks, int shards) {
  BatchOptions options;
  options.global_batch = global_batch;
  options.logical_shards = shards;
  return resolve_batch(options, ranks, samples);
}

// The global batch of each step: the concatenation of the ranks' samples.
std::vector<std::vector<std::uint32_t>> steps_of(const BatchPlan& plan, std::int64_t samples, Cursor begin,
                                                 std::int64_t count) {
  std::vector<std::vector<std::uint32_t>> steps(static_cast<std::size_t>(count));
  for (int rank = 0; rank < plan.ranks; ++rank) {
    BatchStream stream(plan, rank, samples, {.seed = 9}, begin, count);
    for (auto& step : steps) {
      const auto mine = stream.next();
      EXPECT_TRUE(mine.has_value());
      step.insert(step.end(), mine->indices.begin(), mine->indices.end());
    }
    EXPECT_FALSE(stream.next().has_value());
  }
  return steps;
}

TEST(BatchStream, TheGlobalBatchesDoNotDependOnTheRanks) {
  const std::int64_t samples = 103;
  const auto expected = steps_of(plan_for(samples, 10, 1, 6), samples, {}, 25);
  for (const int ranks : {2, 3, 4, 6}) {
    EXPECT_EQ(steps_of(plan_for(samples, 10, ranks, 6), samples, {}, 25), expected) << ranks;
  }
}

// Each global batch has every one of its samples as often as it has copies, with different keys and no copy as its partner.
TEST(BatchStream, ASampleHasItsCopiesInOneGlobalBatch) {
  const std::int64_t samples = 103;
  constexpr std::int64_t kSteps = 18;  // an epoch of ten steps of 12, and more
  std::vector<std::pair<std::uint32_t, std::uint64_t>> on_one;
  for (const int ranks : {1, 2, 3}) {
    const BatchPlan plan = plan_for(samples, 12, ranks, 6);
    std::vector<std::vector<std::pair<std::uint32_t, std::uint64_t>>> steps(kSteps);
    for (int rank = 0; rank < ranks; ++rank) {
      BatchStream stream(plan, rank, samples, {.seed = 9, .copies = 3}, {}, kSteps);
      for (auto& step : steps) {
        const auto mine = stream.next();
        ASSERT_TRUE(mine.has_value());
        for (std::size_t i = 0; i < mine->indices.size(); ++i) {
          step.emplace_back(mine->indices[i], mine->keys[i]);
          if (mine->partners[i] != i && mine->indices.size() > 3) {
            EXPECT_NE(mine->indices[mine->partners[i]], mine->indices[i]);
          }
        }
      }
    }
    std::set<std::uint32_t> first_epoch;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      std::set<std::uint64_t> keys;
      for (const auto& [index, key] : steps[s]) keys.insert(key);
      EXPECT_EQ(keys.size(), steps[s].size());
      if (steps[s].size() != 12) continue;
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(steps[s][i].first, steps[s][i + 4].first);
        EXPECT_EQ(steps[s][i].first, steps[s][i + 8].first);
        if (s >= 8) continue;
        EXPECT_TRUE(first_epoch.insert(steps[s][i].first).second);
      }
    }
    std::vector<std::pair<std::uint32_t, std::uint64_t>> all;
    for (const auto& step : steps) all.insert(all.end(), step.begin(), step.end());
    if (ranks == 1) on_one = all;
    EXPECT_EQ(all, on_one) << ranks;
  }
}

// Several steps of an epoch requested together are what they are one by one.
TEST(BatchStream, StepsCanBeRequestedTogether) {
  const std::int64_t samples = 103;
  for (const int ranks : {1, 3}) {
    const BatchPlan plan = plan_for(samples, 10, ranks, 6);
    for (const std::int64_t at_a_time : {1, 4, 11}) {
      for (int rank = 0; rank < ranks; ++rank) {
        constexpr std::int64_t kSteps = 16;
        const Cursor begin{2, 9};
        BatchStream single(plan, rank, samples, {.seed = 9}, begin, kSteps);
        BatchStream several(plan, rank, samples, {.seed = 9, .at_a_time = at_a_time}, begin, kSteps);
        for (std::int64_t step = 0; step < kSteps;) {
          const auto all = several.next();
          ASSERT_TRUE(all.has_value());
          const std::int64_t in_epoch = (begin.step + step) % plan.steps_per_epoch;
          const std::int64_t together = std::min({at_a_time, plan.steps_per_epoch - in_epoch, kSteps - step});
          std::size_t at = 0;
          for (std::int64_t i = 0; i < together; ++i) {
            const auto one = single.next();
            const std::size_t count = one->indices.size();
            EXPECT_TRUE(std::ranges::equal(one->indices, all->indices.subspan(at, count))) << step;
            EXPECT_TRUE(std::ranges::equal(one->keys, all->keys.subspan(at, count))) << step;
            for (std::size_t s = 0; s < count; ++s) EXPECT_EQ(one->partners[s] + at, all->partners[at + s]);
            at += count;
          }
          EXPECT_EQ(all->indices.size(), at);
          step += together;
        }
        EXPECT_FALSE(several.next().has_value());
        EXPECT_FALSE(single.next().has_value());
      }
    }
  }
}

TEST(BatchStream, EachEpochHasEachSampleOnce) {
  const std::int64_t samples = 103;
  const BatchPlan plan = plan_for(samples, 10, 3, 3);
  const auto steps = steps_of(plan, samples, {}, 2 * plan.steps_per_epoch);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    std::multiset<std::uint32_t> seen;
    for (std::int64_t s = 0; s < plan.steps_per_epoch; ++s) {
      const auto& step = steps[static_cast<std::size_t>(epoch * plan.steps_per_epoch + s)];
      seen.insert(step.begin(), step.end());
    }
    EXPECT_EQ(seen.size(), 103U);
    EXPECT_EQ(std::set<std::uint32_t>(seen.begin(), seen.end()).size(), 103U);
  }
  EXPECT_EQ(steps[10].size(), 3U);  // 103 = 10 * 10 + 3
}

// A sample's key is a function of seed, epoch and sample: the same on all ranks, different in each epoch.
TEST(BatchStream, KeysBelongToSeedEpochAndSample) {
  const std::int64_t samples = 103;
  std::set<std::uint64_t> seen;
  for (const int ranks : {1, 3}) {
    const BatchPlan plan = plan_for(samples, 10, ranks, 6);
    for (int rank = 0; rank < ranks; ++rank) {
      BatchStream stream(plan, rank, samples, {.seed = 9}, {}, 2 * plan.steps_per_epoch);
      for (std::int64_t step = 0; step < 2 * plan.steps_per_epoch; ++step) {
        const auto mine = stream.next();
        ASSERT_TRUE(mine.has_value());
        ASSERT_EQ(mine->keys.size(), mine->indices.size());
        for (std::size_t i = 0; i < mine->keys.size(); ++i) {
          EXPECT_EQ(mine->keys[i], sample_key(9, step / plan.steps_per_epoch, mine->indices[i]));
          seen.insert(mine->keys[i]);
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 206U);
  EXPECT_NE(sample_key(9, 0, 5), sample_key(10, 0, 5));
}

// --random-flip alternate: the bit of a sample changes in every epoch, half of them begin with 1, and the rest of the key
// is as usual.
TEST(BatchStream, AlternatingKeysFlipTheirBitInEveryEpoch) {
  const std::int64_t samples = 1000;
  const BatchPlan plan = plan_for(samples, 100, 1, 1);
  BatchStream stream(plan, 0, samples, {.seed = 9, .alternating = true}, {}, 4 * plan.steps_per_epoch);
  std::vector<std::vector<bool>> bits(4, std::vector<bool>(static_cast<std::size_t>(samples)));
  for (std::int64_t step = 0; step < 4 * plan.steps_per_epoch; ++step) {
    const auto batch = stream.next();
    for (std::size_t i = 0; i < batch->keys.size(); ++i) {
      const std::int64_t epoch = step / plan.steps_per_epoch;
      bits[static_cast<std::size_t>(epoch)][batch->indices[i]] = alternating_bit(batch->keys[i]);
      EXPECT_EQ((batch->keys[i] ^ sample_key(9, epoch, batch->indices[i])) << 1U, 0U);
    }
  }
  for (std::size_t i = 0; i < bits[0].size(); ++i) {
    EXPECT_NE(bits[0][i], bits[1][i]);
    EXPECT_EQ(bits[0][i], bits[2][i]);
    EXPECT_EQ(bits[1][i], bits[3][i]);
  }
  EXPECT_NEAR(static_cast<double>(std::count(bits[0].begin(), bits[0].end(), true)), 500, 80);  // five deviations
}

// What a batch has in common depends on seed, epoch and step alone.
TEST(BatchStream, BatchKeysAreThoseOfAllRanks) {
  std::set<std::uint64_t> seen;
  for (const int ranks : {1, 3}) {
    const BatchPlan plan = plan_for(103, 10, ranks, 6);
    for (int rank = 0; rank < ranks; ++rank) {
      BatchStream stream(plan, rank, 103, {.seed = 9}, {}, 2 * plan.steps_per_epoch);
      for (std::int64_t step = 0; step < 2 * plan.steps_per_epoch; ++step) {
        const std::uint64_t key = stream.next()->batch_key;
        EXPECT_EQ(key, batch_key(9, step / plan.steps_per_epoch, step % plan.steps_per_epoch));
        seen.insert(key);
      }
    }
  }
  EXPECT_EQ(seen.size(), 22U);
}

// Partners are pairs within a logical shard, independent of the number of ranks.
TEST(BatchStream, PartnersArePairsWithinAShard) {
  const std::int64_t samples = 103;
  std::vector<std::set<std::pair<std::uint32_t, std::uint32_t>>> by_ranks;
  for (const int ranks : {1, 2, 3}) {
    const BatchPlan plan = plan_for(samples, 20, ranks, 6);
    auto& pairs = by_ranks.emplace_back();
    int alone = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      BatchStream stream(plan, rank, samples, {.seed = 9}, {}, plan.steps_per_epoch);
      while (const auto mine = stream.next()) {
        ASSERT_EQ(mine->partners.size(), mine->indices.size());
        for (std::size_t i = 0; i < mine->partners.size(); ++i) {
          const std::uint32_t partner = mine->partners[i];
          ASSERT_EQ(mine->partners[partner], i);
          alone += partner == i ? 1 : 0;
          pairs.insert({mine->indices[i], mine->indices[partner]});
        }
      }
    }
    // Shards have 3 or 4 samples, and 1 or 0 at the end of an epoch.
    EXPECT_EQ(alone, 5 * 4 + 3);
  }
  EXPECT_EQ(by_ranks[0], by_ranks[1]);
  EXPECT_EQ(by_ranks[0], by_ranks[2]);
}

TEST(BatchStream, GoesOnFromAnyCursor) {
  const std::int64_t samples = 57;
  const BatchPlan plan = plan_for(samples, 8, 2, 2);
  const auto whole = steps_of(plan, samples, {}, 20);
  Cursor cursor;
  for (std::size_t s = 0; s < 20; ++s) {
    EXPECT_EQ(steps_of(plan, samples, cursor, 1).front(), whole[s]);
    cursor = advanced(cursor, plan.steps_per_epoch);
  }
}

}  // namespace
}  // namespace ddp
