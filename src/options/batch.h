// Batch arithmetic: from what the user names to what each rank computes in a step.
//
//   const BatchPlan plan = resolve_batch(options.batch, /*ranks=*/3, /*train_samples=*/60000);
//   plan.global_batch;                                // 256
//   plan.rank_samples(0, 256);                        // {0, 86}: rank 0's samples of a whole batch
//   const double lr = scaled_lr(options.optimizer, plan.global_batch);
//
// The global batch is cut into logical shards, and each rank owns a run of consecutive shards (base/partition.h).
#pragma once

#include <cstdint>

#include "base/partition.h"
#include "options/options.h"

namespace ddp {

struct BatchPlan {
  std::int64_t global_batch = 0;     // samples in a step
  int ranks = 1;                     //
  int shards = 1;                    // logical shards of the global batch, at least `ranks`
  std::int64_t per_rank = 0;         // samples in a step of the rank that has most
  std::int64_t per_shard = 0;        // samples of the largest shard
  std::int64_t steps_per_epoch = 0;  //
  std::int64_t last_batch = 0;       // samples in the last step of an epoch, at most global_batch

  // The shards that a rank owns.
  Range shards_of(int rank) const { return part(shards, ranks, rank); }
  // The samples of a shard, within a batch of `batch` samples; empty for some shards where batch < shards.
  Range shard_samples(std::int64_t shard, std::int64_t batch) const { return part(batch, shards, shard); }
  // The samples of a rank, within a batch of `batch` samples: those of all its shards.
  Range rank_samples(int rank, std::int64_t batch) const;
  // The samples in step `step` of an epoch, counted from 0.
  std::int64_t batch_of_step(std::int64_t step) const {
    return step + 1 == steps_per_epoch ? last_batch : global_batch;
  }
};

// Throws Error(usage) where more than one of --global-batch, --batch-per-rank and --batch-size is given.
void check_batch_choice(const BatchOptions& options);

// Throws Error(usage) as above, for --batch-size with several ranks, for a global batch smaller than the ranks or the
// logical shards, for fewer logical shards than ranks, and where --drop-last leaves no step.
BatchPlan resolve_batch(const BatchOptions& options, int ranks, std::int64_t train_samples);

// The learning rate at this global batch: lr; lr B / base (linear scaling: Goyal et al., "Accurate, Large Minibatch
// SGD", 2017); or lr sqrt(B / base) (Krizhevsky, "One weird trick", 2014).
double scaled_lr(const OptimizerOptions& options, std::int64_t global_batch);

}  // namespace ddp
