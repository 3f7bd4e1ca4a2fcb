#include "options/batch.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text/text.h"

namespace ddp {
namespace {

std::int64_t global_batch_of(const BatchOptions& options, int ranks) {
  check_batch_choice(options);
  if (options.batch_size) {
    const std::int64_t size = *options.batch_size;
    check(ranks == 1, ExitCode::usage,
          "--batch-size {} is ambiguous with {} ranks; use --global-batch {} (samples over all ranks) or "
          "--batch-per-rank {} (samples on each rank)",
          size, ranks, size, size);
    return size;
  }
  if (options.batch_per_rank) {
    const std::int64_t global = *options.batch_per_rank * ranks;
    check(global <= std::numeric_limits<std::int32_t>::max(), ExitCode::usage,
          "--batch-per-rank {} on {} ranks is a global batch of {}; the maximum is {}", *options.batch_per_rank, ranks,
          global, std::numeric_limits<std::int32_t>::max());
    return global;
  }
  return options.global_batch.value_or(kDefaultGlobalBatch);
}

}  // namespace

Range BatchPlan::rank_samples(int rank, std::int64_t batch) const {
  const Range own = shards_of(rank);
  return {shard_samples(own.begin, batch).begin, shard_samples(own.end - 1, batch).end};
}

void BatchPlan::divide(std::vector<std::int64_t> counts) {
  shard_counts = std::move(counts);
  per_rank = 0;
  for (int rank = 0; rank < ranks; ++rank) per_rank = std::max(per_rank, rank_samples(rank, global_batch).size());
}

void BatchPlan::at_least_two(bool shards_compute_alone) {
  const std::int64_t whole = global_batch / shards;
  DDP_ASSERT(whole >= 2 || (!shards_compute_alone && global_batch >= 2));
  if (last_batch == 1) {
    --steps_per_epoch;
    last_batch = global_batch;
    ++dropped;
  }
  if (!shards_compute_alone) return;
  least_per_shard = 2;
  // With an odd number one shard has three, which only fits where a shard of a whole batch has as many.
  const std::int64_t fits = std::min(last_batch, shards_in(last_batch) * per_shard);
  dropped += last_batch - fits;
  last_batch = fits;
}

void check_batch_choice(const BatchOptions& options) {
  std::vector<std::string> given;
  if (options.global_batch) given.emplace_back("--global-batch");
  if (options.batch_per_rank) given.emplace_back("--batch-per-rank");
  if (options.batch_size) given.emplace_back("--batch-size");
  check(given.size() < 2, ExitCode::usage, "{} are mutually exclusive", join(given, " and "));
}

BatchPlan resolve_batch(const BatchOptions& options, int ranks, std::int64_t train_samples, int stages) {
  DDP_ASSERT(ranks >= 1 && stages >= 1 && ranks % stages == 0);
  check(train_samples > 0, ExitCode::usage, "the training set is empty");
  BatchPlan plan;
  plan.ranks = ranks / stages;
  plan.global_batch = global_batch_of(options, ranks);
  plan.shards = options.logical_shards == 0 ? ranks : options.logical_shards;
  check(plan.global_batch >= ranks, ExitCode::usage,
        "a global batch of {} is smaller than the number of ranks, {}; use --global-batch {} or more, or fewer ranks",
        plan.global_batch, ranks, ranks);
  const std::string dividers = stages == 1 ? "ranks" : "replicas";
  check(plan.shards >= plan.ranks, ExitCode::usage,
        "--logical-shards {} is less than the number of {}, {}; every {} needs at least one shard", plan.shards,
        dividers, plan.ranks, dividers.substr(0, dividers.size() - 1));
  check(
      plan.global_batch >= plan.shards, ExitCode::usage,
      "a global batch of {} is smaller than the number of logical shards, {}; use --global-batch {} or more, or fewer "
      "--logical-shards",
      plan.global_batch, plan.shards, plan.shards);
  check(!options.balance || ranks == 1 || plan.shards > ranks, ExitCode::usage,
        "--balance on moves logical shards between ranks, but each of {} ranks has only one; give --logical-shards {}, "
        "for "
        "example",
        ranks, 4 * ranks);
  plan.per_shard = plan.shard_samples(0, plan.global_batch).size();
  // The first rank has the most shards, and the larger ones.
  plan.per_rank = plan.rank_samples(0, plan.global_batch).size();
  const std::int64_t whole = train_samples / plan.global_batch;
  const std::int64_t rest = train_samples % plan.global_batch;
  check(!options.drop_last || whole > 0, ExitCode::usage,
        "--drop-last leaves no steps: the global batch of {} is larger than the training set of {} samples",
        plan.global_batch, train_samples);
  const bool partial = rest > 0 && !options.drop_last;
  plan.steps_per_epoch = whole + (partial ? 1 : 0);
  plan.last_batch = partial ? rest : plan.global_batch;
  plan.dropped = partial ? 0 : rest;
  return plan;
}

std::int64_t steps_of_epochs(double epochs, std::int64_t steps_per_epoch) {
  // 0.1 epochs of 30 steps are 3 steps, although 0.1 * 30 is rounded to slightly more.
  constexpr double kRounding = 1e-12;
  const double steps = epochs * static_cast<double>(steps_per_epoch);
  return static_cast<std::int64_t>(std::ceil(steps * (1 - kRounding)));
}

std::int64_t total_steps(const OptimizerOptions& options, std::int64_t steps_per_epoch) {
  const std::int64_t steps = steps_of_epochs(options.epochs, steps_per_epoch);
  return options.max_steps > 0 ? std::min(steps, options.max_steps) : steps;
}

double scaled_lr(const OptimizerOptions& options, std::int64_t global_batch) {
  const double ratio = static_cast<double>(global_batch) / static_cast<double>(options.lr_base_batch);
  switch (options.lr_scale) {
    case LrScale::none:
      break;
    case LrScale::linear:
      return options.lr * ratio;
    case LrScale::sqrt:
      return options.lr * std::sqrt(ratio);
  }
  return options.lr;
}

}  // namespace ddp
