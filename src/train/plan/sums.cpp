#include "train/plan/sums.h"

#include <algorithm>
#include <vector>

namespace ddp {

std::size_t gradient_bytes(const DistributedOptions& options, const Graph& graph, const Parallelism& parallelism) {
  const bool half = options.gradient_precision == GradientPrecision::bf16;
  std::int64_t elements = parallelism.held.size() - parallelism.slices.elements();
  for (const Parameter& p : graph.parameters()) {
    elements -= p.frozen && parallelism.holds(p) ? p.flat_elements() : 0;
  }
  return static_cast<std::size_t>(std::max<std::int64_t>(0, elements)) * (half ? sizeof(Bf16) : sizeof(float));
}

// It determines the order of additions along rings.
BucketSize choose_bucket_bytes(const Options& options, std::size_t gradient_bytes, const std::optional<LinkSpeed>& link,
                               int ranks, const std::optional<TrainingState>& resumed) {
  BucketSize size;
  if (!link || options.distributed.bucket_mib != 0) return size;
  const bool depends = reduction_of(options) == Reduction::ring;
  if (depends && resumed && resumed->bucket_ranks == ranks && resumed->bucket_bytes > 0) {
    size.bytes = static_cast<std::size_t>(resumed->bucket_bytes);
  } else {
    size.bytes = best_bucket_bytes(*link, gradient_bytes);
  }
  if (depends) size.measured_ranks = ranks;
  return size;
}

ReducerConfig reducer_config(const Options& run, const Graph& graph, const Parallelism& parallelism,
                             std::size_t bucket_bytes, const BatchPlan& batch, HostShare* share) {
  const DistributedOptions& options = run.distributed;
  std::vector<std::size_t> sizes;
  // Parameters whose gradients are not summed: those that are divided, and those that are frozen, whose gradients are zero.
  std::vector<bool> kept = parallelism.slices.divided();
  kept.resize(graph.parameters().size());
  const Range held = parallelism.held;
  ReducerConfig config;
  config.kept = parallelism.slices.whole();
  for (const Parameter& p : graph.parameters()) {
    if (!parallelism.holds(p)) continue;
    const std::size_t index = sizes.size();
    const std::int64_t begin = p.offset - held.begin;
    if (p.frozen && !kept[index]) config.kept.push_back({begin, begin + p.flat_elements()});
    kept[index] = kept[index] || p.frozen;
    sizes.push_back(static_cast<std::size_t>(p.flat_elements()));
  }
  const auto bytes = [](double mib) { return static_cast<std::size_t>(mib * 1024 * 1024); };
  config.algorithm = reduction_of(run);
  config.bf16 = options.gradient_precision == GradientPrecision::bf16;
  config.overlap = options.overlap;
  const std::size_t others = options.bucket_mib > 0 ? bytes(options.bucket_mib) : bucket_bytes;
  const std::size_t first = bytes(options.first_bucket_mib);
  // Where the measured link suggests smaller buckets, the first is one of them.
  config.buckets = plan_buckets(sizes, options.bucket_mib > 0 ? first : std::min(first, others), others, kept);
  config.shards = batch.shards;
  config.shard_counts = batch.shard_counts;
  config.elements = static_cast<std::size_t>(held.size());
  if (share != nullptr) config.part = [share](std::int64_t elements) { return share->part(elements); };
  return config;
}

}  // namespace ddp
