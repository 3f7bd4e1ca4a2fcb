#include "options/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/error.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const BatchOptions& options, int ranks, std::int64_t samples = 1000) {
  try {
    resolve_batch(options, ranks, samples);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Partition, CutsIntoConsecutivePartsAsEqualAsCanBe) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 500; ++trial) {
    const auto total = static_cast<std::int64_t>(random() % 300);
    const auto parts = static_cast<std::int64_t>(1 + random() % 40);
    std::int64_t next = 0;
    std::int64_t previous = total;
    for (std::int64_t index = 0; index < parts; ++index) {
      const Range range = part(total, parts, index);
      ASSERT_EQ(range.begin, next);
      ASSERT_LE(range.size(), previous) << "a later part is larger";
      ASSERT_TRUE(range.size() == total / parts || range.size() == (total + parts - 1) / parts);
      for (std::int64_t item = range.begin; item < range.end; ++item)
        ASSERT_EQ(part_holding(total, parts, item), index);
      next = range.end;
      previous = range.size();
    }
    ASSERT_EQ(next, total);
  }
}

TEST(Partition, ReachesLargeNumbersWithoutOverflow) {
  const std::int64_t total = std::int64_t{1} << 62U;
  EXPECT_EQ(part(total, 3, 2).end, total);
  EXPECT_EQ(part_holding(total, 3, total - 1), 2);
}

TEST(Partition, RefusesAnIndexOutOfRange) {
  EXPECT_THROW(part(10, 3, 3), Error);
  EXPECT_THROW(part(10, 0, 0), Error);
  EXPECT_THROW(part(10, 3, -1), Error);
  EXPECT_THROW(part_holding(10, 3, 10), Error);
}

TEST(Batch, TheThreeNamesOfOneSize) {
  EXPECT_EQ(resolve_batch({}, 3, 60000).global_batch, 256);
  EXPECT_EQ(resolve_batch({.global_batch = 100}, 3, 60000).per_rank, 34);
  EXPECT_EQ(resolve_batch({.batch_per_rank = 32}, 3, 60000).global_batch, 96);
  EXPECT_EQ(resolve_batch({.batch_size = 64}, 1, 60000).global_batch, 64);
}

TEST(Batch, CountsStepsAndTheLastBatch) {
  BatchPlan plan = resolve_batch({.global_batch = 256}, 2, 60000);
  EXPECT_EQ(plan.steps_per_epoch, 235);
  EXPECT_EQ(plan.last_batch, 60000 - 234 * 256);
  EXPECT_EQ(plan.batch_of_step(233), 256);
  EXPECT_EQ(plan.batch_of_step(234), plan.last_batch);
  plan = resolve_batch({.global_batch = 256, .drop_last = true}, 2, 60000);
  EXPECT_EQ(plan.steps_per_epoch, 234);
  EXPECT_EQ(plan.last_batch, 256);
  plan = resolve_batch({.global_batch = 250}, 2, 60000);
  EXPECT_EQ(plan.steps_per_epoch, 240);
  EXPECT_EQ(plan.last_batch, 250);
  plan = resolve_batch({.global_batch = 256}, 2, 100);
  EXPECT_EQ(plan.steps_per_epoch, 1);
  EXPECT_EQ(plan.last_batch, 100);
}

TEST(Batch, RanksTogetherHoldEachSampleOnceInShardOrder) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 300; ++trial) {
    const int ranks = 1 + static_cast<int>(random() % 8);
    const int shards = ranks + static_cast<int>(random() % 9);
    const std::int64_t batch = shards + static_cast<std::int64_t>(random() % 100);
    const BatchPlan plan = resolve_batch({.global_batch = batch, .logical_shards = shards}, ranks, 1000);
    const std::int64_t actual = 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(batch));
    std::int64_t next = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Range own = plan.rank_samples(rank, actual);
      ASSERT_EQ(own.begin, next);
      const Range own_shards = plan.shards_of(rank);
      ASSERT_GE(own_shards.size(), 1);
      for (std::int64_t shard = own_shards.begin; shard < own_shards.end; ++shard) {
        ASSERT_EQ(plan.shard_samples(shard, actual).begin, next);
        next = plan.shard_samples(shard, actual).end;
        ASSERT_LE(plan.shard_samples(shard, actual).size(), plan.per_shard);
      }
      ASSERT_EQ(own.end, next);
      ASSERT_LE(own.size(), plan.per_rank);
    }
    ASSERT_EQ(next, actual);
  }
}

TEST(Batch, ABareBatchSizeWithSeveralRanksNamesBothAlternatives) {
  EXPECT_THAT(refusal({.batch_size = 32}, 4),
              AllOf(HasSubstr("--global-batch 32"), HasSubstr("--batch-per-rank 32"), HasSubstr("4 ranks")));
}

TEST(Batch, RefusesWhatCannotBeShared) {
  EXPECT_THAT(refusal({.global_batch = 3}, 4), AllOf(HasSubstr("smaller than the number of ranks, 4"), HasSubstr("3")));
  EXPECT_THAT(refusal({.global_batch = 7, .logical_shards = 8}, 4), HasSubstr("number of logical shards, 8"));
  EXPECT_THAT(refusal({.global_batch = 64, .logical_shards = 3}, 4), HasSubstr("--logical-shards 3"));
  EXPECT_THAT(refusal({.global_batch = 8, .batch_per_rank = 2}, 4), HasSubstr("--batch-per-rank"));
  EXPECT_THAT(refusal({.global_batch = 8, .batch_size = 8}, 1), HasSubstr("mutually exclusive"));
  EXPECT_THAT(refusal({.global_batch = 256, .drop_last = true}, 2, 255), HasSubstr("leaves no step"));
  EXPECT_THAT(refusal({.batch_per_rank = 2147483647}, 2), HasSubstr("maximum"));
  EXPECT_THAT(refusal({}, 2, 0), HasSubstr("training set is empty"));
}

TEST(LearningRate, ScalesWithTheGlobalBatch) {
  OptimizerOptions options;
  options.lr = 0.5;
  options.lr_base_batch = 256;
  EXPECT_EQ(scaled_lr(options, 1024), 0.5);
  options.lr_scale = LrScale::linear;
  EXPECT_EQ(scaled_lr(options, 1024), 2.0);
  EXPECT_EQ(scaled_lr(options, 64), 0.125);
  options.lr_scale = LrScale::sqrt;
  EXPECT_EQ(scaled_lr(options, 1024), 1.0);
}

TEST(Batch, EpochsMayEndInAPartOfOne) {
  EXPECT_EQ(steps_of_epochs(10, 235), 2350);
  EXPECT_EQ(steps_of_epochs(9.9, 48), 476);  // 475.2
  EXPECT_EQ(steps_of_epochs(0.1, 30), 3);    // although 0.1 * 30 > 3 in double precision
  EXPECT_EQ(steps_of_epochs(1.1, 10), 11);
  EXPECT_EQ(steps_of_epochs(0.001, 10), 1);
  EXPECT_EQ(steps_of_epochs(0, 10), 0);
  EXPECT_EQ(steps_of_epochs(1e9, 1), 1'000'000'000);
}

TEST(Batch, BalanceRequiresShardsThatCanMove) {
  BatchOptions options;
  options.global_batch = 64;
  options.balance = true;
  EXPECT_THAT(refusal(options, 2), AllOf(HasSubstr("--balance on"), HasSubstr("--logical-shards 8")));
  EXPECT_EQ(resolve_batch(options, 1, 1000).shards, 1);
  options.logical_shards = 8;
  EXPECT_EQ(resolve_batch(options, 2, 1000).shards, 8);
}

// Every shard of a batch has no sample or two of them, and no more than its memory is for; the steps of an epoch depend on
// neither shards nor ranks.
TEST(Batch, AtLeastTwoSamplesWhereShardsComputeAlone) {
  for (const std::int64_t global : {8, 9, 12, 31}) {
    for (std::int64_t samples = 2; samples < 40; ++samples) {
      for (const int shards : {1, 2, 3, 4}) {
        BatchPlan plan = resolve_batch({.global_batch = global, .logical_shards = shards}, 1, samples);
        const std::int64_t rest = samples % global;
        plan.at_least_two(true);
        SCOPED_TRACE(testing::Message() << samples << " samples in batches of " << global << ", " << shards
                                        << " shards");
        EXPECT_EQ(plan.steps_per_epoch, samples / global + (rest > 1 ? 1 : 0));
        EXPECT_EQ(plan.dropped + (plan.steps_per_epoch - 1) * global + plan.last_batch, samples);
        EXPECT_LE(plan.dropped, 1);
        std::int64_t end = 0;
        for (int shard = 0; shard < shards; ++shard) {
          const Range range = plan.shard_samples(shard, plan.last_batch);
          EXPECT_EQ(range.begin, end);
          EXPECT_NE(range.size(), 1);
          EXPECT_LE(range.size(), plan.shard_samples(shard, global).size());
          end = range.end;
        }
        EXPECT_EQ(end, plan.last_batch);
        for (int ranks = 2; ranks <= shards; ++ranks) {
          BatchPlan other = resolve_batch({.global_batch = global, .logical_shards = shards}, ranks, samples);
          other.at_least_two(true);
          EXPECT_EQ(other.last_batch, plan.last_batch);
          std::int64_t sum = 0;
          for (int rank = 0; rank < ranks; ++rank) {
            EXPECT_EQ(other.rank_samples(rank, other.last_batch).begin, sum);
            EXPECT_LE(other.rank_samples(rank, other.last_batch).size(), other.per_rank);
            sum = other.rank_samples(rank, other.last_batch).end;
          }
          EXPECT_EQ(sum, other.last_batch);
        }
      }
    }
  }
}

TEST(Batch, AtLeastTwoSamplesOfAllShardsTogether) {
  BatchPlan plan = resolve_batch({.global_batch = 4, .logical_shards = 4}, 4, 13);
  plan.at_least_two(false);
  EXPECT_EQ(plan.steps_per_epoch, 3);
  EXPECT_EQ(plan.dropped, 1);
  EXPECT_EQ(plan.shard_samples(3, 4).size(), 1);
  plan = resolve_batch({.global_batch = 4, .logical_shards = 4}, 4, 14);
  plan.at_least_two(false);
  EXPECT_EQ(plan.last_batch, 2);
  EXPECT_EQ(plan.shard_samples(1, 2).size(), 1);
}

}  // namespace
}  // namespace ddp
