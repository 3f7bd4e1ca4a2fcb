// Batch arithmetic: from the batch options to the samples of each rank and step.
//
//   const BatchPlan plan = resolve_batch(options.batch, /*ranks=*/3, /*train_samples=*/60000);
//   plan.global_batch;                                // 256
//   plan.rank_samples(0, 256);                        // {0, 86}: rank 0's samples of a whole batch
//   const double lr = scaled_lr(options.optimizer, plan.global_batch);
//
// The global batch is split into logical shards; each rank owns consecutive shards (base/partition.h). With --pipeline these
// are the micro-batches of a replica, that is of as many ranks as there are stages; `ranks` and `rank` below then count
// replicas.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/partition.h"
#include "options/options.h"

namespace ddp {

struct BatchPlan {
  std::int64_t global_batch = 0;  // samples per step
  int ranks = 1;
  int shards = 1;              // logical shards of the global batch, at least `ranks`
  std::int64_t per_rank = 0;   // maximum samples per step of a rank
  std::int64_t per_shard = 0;  // maximum samples of a shard
  std::int64_t steps_per_epoch = 0;
  std::int64_t last_batch = 0;                  // samples in the last step of an epoch, at most global_batch
  std::int64_t dropped = 0;                     // samples behind it that no step of an epoch reads
  std::int64_t least_per_shard = 1;             // of shards with samples; see at_least_two()
  std::vector<std::int64_t> shard_counts = {};  // shards of each rank; empty: as many for each, up to one

  // The shards that a rank owns.
  Range shards_of(int rank) const { return part(shards, ranks, rank, shard_counts); }
  // Those that a batch of `batch` samples is divided into; the others are empty.
  std::int64_t shards_in(std::int64_t batch) const { return std::min<std::int64_t>(shards, batch / least_per_shard); }
  // The samples of a shard within a batch of `batch` samples.
  Range shard_samples(std::int64_t shard, std::int64_t batch) const {
    const std::int64_t used = shards_in(batch);
    return shard < used ? part(batch, used, shard) : Range{batch, batch};
  }
  // The samples of a rank, i.e. of all its shards, within a batch of `batch` samples.
  Range rank_samples(int rank, std::int64_t batch) const;
  // Sets the number of shards of each rank, at least one; `per_rank` changes with it.
  void divide(std::vector<std::int64_t> counts);
  // No computation over samples has a single one any more: a last batch of one sample is dropped, and where shards compute
  // alone, one that is smaller than two for each is divided into fewer shards. Requires as many in whole batches.
  void at_least_two(bool shards_compute_alone);
  // The number of samples in step `step` (from 0) of an epoch.
  std::int64_t batch_of_step(std::int64_t step) const {
    return step + 1 == steps_per_epoch ? last_batch : global_batch;
  }
};

// Throws Error(usage) if more than one of --global-batch, --batch-per-rank and --batch-size is given.
void check_batch_choice(const BatchOptions& options);

// Throws Error(usage) as above, for --batch-size with several ranks, for a global batch smaller than the number of
// ranks or logical shards, for fewer logical shards than ranks, and if --drop-last leaves no steps. With several pipeline
// stages, whose number divides that of the ranks, replicas take the place of ranks; by default there are as many shards as
// ranks.
BatchPlan resolve_batch(const BatchOptions& options, int ranks, std::int64_t train_samples, int stages = 1);

// The steps of so many epochs, rounded up: the number of epochs may be fractional.
std::int64_t steps_of_epochs(double epochs, std::int64_t steps_per_epoch);
// Steps of a whole run: those of its epochs, or --max-steps if these are fewer.
std::int64_t total_steps(const OptimizerOptions& options, std::int64_t steps_per_epoch);

// The learning rate for a global batch B: lr, lr B / base (linear scaling: Goyal et al., "Accurate, Large Minibatch
// SGD", 2017), or lr sqrt(B / base) (Krizhevsky, "One weird trick", 2014).
double scaled_lr(const OptimizerOptions& options, std::int64_t global_batch);

}  // namespace ddp
