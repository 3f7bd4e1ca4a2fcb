#include "train/inputs/resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "model/zoo.h"
#include "train/inputs/inputs.h"
#include "train/plan/sums.h"

namespace ddp {
namespace {

using ::testing::HasSubstr;

TrainingState state_of(int shards) {
  TrainingState state;
  state.global_batch = 64;
  state.logical_shards = shards;
  return state;
}

int shards_after(const Options& options, int stored, int ranks) {
  return resumed_shards(options, state_of(stored), ranks);
}

Options with_shards(int shards) {
  Options options;
  options.batch.logical_shards = shards;
  return options;
}

TEST(ShardsOfAResumedRun, AreThoseOfTheCheckpointWhereRanksAreNotMore) {
  EXPECT_EQ(shards_after({}, 4, 1), 4);
  EXPECT_EQ(shards_after({}, 4, 3), 4);
  EXPECT_EQ(shards_after({}, 4, 4), 4);
  EXPECT_EQ(shards_after({}, 1, 2), 2);
  EXPECT_EQ(shards_after({}, 2, 3), 3);
  // RUN/config.cfg of a resumed run names those of the checkpoint.
  EXPECT_EQ(shards_after(with_shards(2), 2, 3), 3);
  // Others were asked for.
  EXPECT_EQ(shards_after(with_shards(8), 2, 3), 8);
  EXPECT_EQ(shards_after(with_shards(2), 4, 2), 2);
}

TEST(ShardsOfAResumedRun, OfAPipelineAreAtLeastItsReplicas) {
  Options options;
  options.distributed.pipeline = 2;
  EXPECT_EQ(shards_after(options, 2, 4), 2);
  EXPECT_EQ(shards_after(options, 2, 6), 6);
}

TEST(ShardsOfAResumedRun, AreOnePerRankForStatisticsOverTheBatch) {
  Options options;
  options.model.sync_batch_norm = true;
  EXPECT_EQ(shards_after(options, 2, 3), 3);
  EXPECT_EQ(shards_after(options, 4, 2), 2);
}

TEST(ShardsOfAResumedRun, ImpossibleOnesAreDamage) {
  for (const int stored : {0, 65}) {
    try {
      (void)shards_after({}, stored, 2);
      ADD_FAILURE() << stored;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::checkpoint);
    }
  }
}

struct Resumed {
  Options options;
  Inputs inputs;
};

Resumed resumed_run(const char* model, int ranks, int shards, bool deterministic) {
  Resumed run;
  run.options.optimizer.deterministic = deterministic;
  run.options.batch.global_batch = 64;
  run.options.batch.logical_shards = shards;
  run.inputs.batch = resolve_batch(run.options.batch, ranks, 1000);
  run.inputs.graph = make_model(model, {1, 28, 28}, 10);
  return run;
}

std::string changes(const Resumed& run, int stored) {
  return changed_shards(run.options, run.inputs, state_of(stored));
}

std::string refusal(const Resumed& run, int stored) {
  try {
    check_same_shards(run.options, run.inputs, state_of(stored));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    return error.what();
  }
  return "";
}

// Only the statistics of single shards, whose bits are promised, are an obstacle.
TEST(ShardsOfAResumedRun, MayBeOthersWhereTheMeaningAllows) {
  EXPECT_EQ(refusal(resumed_run("lenet", 4, 4, true), 2), "");
  EXPECT_EQ(refusal(resumed_run("mnist-slim", 4, 4, false), 2), "");
  EXPECT_EQ(refusal(resumed_run("mnist-slim", 2, 2, true), 2), "");
  const std::string more = refusal(resumed_run("mnist-slim", 4, 4, true), 2);
  EXPECT_THAT(more, HasSubstr("the checkpoint has 2 logical shards"));
  EXPECT_THAT(more, HasSubstr("use at most 2 ranks"));
  EXPECT_THAT(refusal(resumed_run("mnist-slim", 1, 4, true), 2), HasSubstr("omit --logical-shards 4"));
  Resumed synchronized = resumed_run("mnist-slim", 4, 4, true);
  synchronized.options.model.sync_batch_norm = true;
  EXPECT_EQ(refusal(synchronized, 2), "");
}

TEST(ShardsOfAResumedRun, WhatChangesIsSaid) {
  EXPECT_EQ(changes(resumed_run("lenet", 2, 2, false), 2), "");
  EXPECT_THAT(changes(resumed_run("lenet", 4, 4, false), 2),
              HasSubstr("4 logical shards instead of 2; gradients are the same up to rounding"));
  EXPECT_THAT(changes(resumed_run("lenet", 4, 4, true), 2), HasSubstr("bits are those of 4 shards"));
  EXPECT_THAT(changes(resumed_run("mnist-slim", 4, 4, false), 2),
              HasSubstr("statistics from 16 instead of 32 samples"));
}

TEST(GlobalBatchOfAResumedRun, IsExplainedByTheOptionThatWasGiven) {
  Options options;
  options.batch.batch_per_rank = 32;
  TrainingState state = state_of(2);
  state.dataset = options.data.dataset;
  state.model = options.model.model;
  state.seed = options.optimizer.seed;
  try {
    check_same_run(options, state, resolve_batch(options.batch, 3, 1000));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    EXPECT_THAT(error.what(),
                HasSubstr("--batch-per-rank 32 on 3 ranks is one of 96; replace it by --global-batch 64"));
  }
}

// What was measured at the start of a run determines its bits, as the plan does.
class BucketsOfAResumedRun : public ::testing::Test {
 protected:
  BucketsOfAResumedRun() {
    state_.bucket_bytes = 20000;
    state_.bucket_ranks = 2;
  }
  BucketSize chosen(int ranks, const std::optional<TrainingState>& resumed) const {
    return choose_bucket_bytes(run_.options, gradient_bytes(run_.options.distributed, graph(), parallelism()), kLink,
                               ranks, resumed);
  }
  const Graph& graph() const { return run_.inputs.graph; }
  Parallelism parallelism() const { return divide_step(run_.options, {}, graph(), {}, {}); }
  std::size_t measured() const {
    return best_bucket_bytes(kLink, static_cast<std::size_t>(graph().flat_elements()) * sizeof(float));
  }
  static constexpr LinkSpeed kLink{1e-4, 1e8};
  TrainingState state_ = state_of(2);
  Resumed run_ = resumed_run("lenet", 2, 2, false);
};

TEST_F(BucketsOfAResumedRun, AreThoseOfTheCheckpoint) {
  const BucketSize size = chosen(2, state_);
  EXPECT_EQ(size.bytes, 20000U);
  EXPECT_EQ(size.measured_ranks, 2);
  const ReducerConfig config =
      reducer_config(run_.options, graph(), parallelism(), size.bytes, run_.inputs.batch, nullptr);
  EXPECT_GT(config.buckets.size(), 2U);
}

TEST_F(BucketsOfAResumedRun, AreMeasuredForOtherRanksAndByNewAndOldRuns) {
  for (const std::optional<TrainingState>& state :
       {std::optional<TrainingState>(), std::optional(state_of(2)), std::optional(state_)}) {
    EXPECT_EQ(chosen(3, state).bytes, measured());
    EXPECT_EQ(chosen(3, state).measured_ranks, 3) << "what the next checkpoint has";
  }
  EXPECT_EQ(chosen(2, state_of(2)).bytes, measured()) << "an older checkpoint";
}

// Their bits do not depend on buckets, and every run writes the same checkpoints.
TEST_F(BucketsOfAResumedRun, OfTheFixedTreeAreNotStored) {
  run_ = resumed_run("lenet", 2, 2, true);
  EXPECT_EQ(chosen(2, state_).bytes, measured());
  EXPECT_EQ(chosen(2, state_).measured_ranks, 0);
}

TEST_F(BucketsOfAResumedRun, AnOptionTakesPrecedence) {
  run_.options.distributed.bucket_mib = 1;
  EXPECT_EQ(chosen(2, state_).measured_ranks, 0);
}

}  // namespace
}  // namespace ddp
