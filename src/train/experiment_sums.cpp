// How the gradients of an experiment are summed.
#include <algorithm>

#include "train/experiment.h"

namespace ddp {
namespace {

// As sent in a step.
std::size_t gradient_bytes(const Experiment& e) {
  const bool half = e.options.distributed.gradient_precision == GradientPrecision::bf16;
  std::int64_t elements = e.held().size() - e.slices.elements();
  for (const Parameter& p : e.graph.parameters()) elements -= p.frozen && e.holds(p) ? p.flat_elements() : 0;
  return static_cast<std::size_t>(std::max<std::int64_t>(0, elements)) * (half ? sizeof(Bf16) : sizeof(float));
}

}  // namespace

ReducerConfig reducer_config(const Experiment& e) {
  const DistributedOptions& options = e.options.distributed;
  std::vector<std::size_t> sizes;
  // Parameters whose gradients are not summed: those that are divided, and those that are frozen, whose gradients are zero.
  std::vector<bool> kept = e.slices.divided();
  kept.resize(e.graph.parameters().size());
  const Range held = e.held();
  ReducerConfig config;
  config.kept = e.slices.whole();
  for (const Parameter& p : e.graph.parameters()) {
    if (!e.holds(p)) continue;
    const std::size_t index = sizes.size();
    const std::int64_t begin = p.offset - held.begin;
    if (p.frozen && !kept[index]) config.kept.push_back({begin, begin + p.flat_elements()});
    kept[index] = kept[index] || p.frozen;
    sizes.push_back(static_cast<std::size_t>(p.flat_elements()));
  }
  const auto bytes = [](double mib) { return static_cast<std::size_t>(mib * 1024 * 1024); };
  config.algorithm = reduction_of(e.options);
  config.bf16 = options.gradient_precision == GradientPrecision::bf16;
  config.overlap = options.overlap;
  const std::size_t others = options.bucket_mib > 0 ? bytes(options.bucket_mib) : e.bucket_bytes;
  const std::size_t first = bytes(options.first_bucket_mib);
  // Where the measured link suggests smaller buckets, the first is one of them.
  config.buckets = plan_buckets(sizes, options.bucket_mib > 0 ? first : std::min(first, others), others, kept);
  config.shards = e.batch.shards;
  config.shard_counts = e.batch.shard_counts;
  config.elements = static_cast<std::size_t>(held.size());
  if (e.share) config.part = [share = e.share.get()](std::int64_t elements) { return share->part(elements); };
  return config;
}

// It determines the order of additions along rings.
void choose_bucket_bytes(Experiment& e, const std::optional<LinkSpeed>& link, int ranks,
                         const std::optional<TrainingState>& resumed) {
  if (e.options.distributed.bucket_mib != 0 || ranks == 1 || e.device.gpu_module) return;
  const bool depends = reduction_of(e.options) == Reduction::ring;
  if (depends && resumed && resumed->bucket_ranks == ranks && resumed->bucket_bytes > 0) {
    e.bucket_bytes = static_cast<std::size_t>(resumed->bucket_bytes);
  } else {
    e.bucket_bytes = best_bucket_bytes(*link, gradient_bytes(e));
  }
  if (depends) e.measured_bucket_ranks = ranks;
}

}  // namespace ddp
