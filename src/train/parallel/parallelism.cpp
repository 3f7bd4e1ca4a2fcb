#include "train/parallel/parallelism.h"

#include <utility>
#include <variant>

#include "gradients/buckets.h"
#include "train/parallel/shared_state.h"

namespace ddp {
namespace {

ParameterSlices slices_of(const Graph& graph, const PipelinePlace& place) {
  const std::vector<int> layers = divided_layers(graph);
  if (layers.empty()) return {};
  return {graph, layers, place.replicas, place.replica};
}

}  // namespace

Parallelism divide_step(const Options& options, const Device& device, const Graph& graph, const PipelinePlace& place,
                        std::vector<Range> parts) {
  Parallelism parallelism{.place = place, .parts = std::move(parts), .held = {}, .slices = slices_of(graph, place)};
  parallelism.held = parallelism.pipelined() ? parallelism.parts[static_cast<std::size_t>(place.stage)]
                                             : Range{0, graph.flat_elements()};
  const bool whole = !parallelism.slices.any() && !parallelism.pipelined();
  parallelism.shares_state = whole && place.replicas > 1 && may_share_state(options, device);
  return parallelism;
}

Reduction reduction_of(const Options& options) {
  // Only the fixed tree adds in an order that is independent of the number of ranks.
  return options.optimizer.deterministic ? Reduction::tree : options.distributed.reduction;
}

std::vector<int> hosts_of_sums(const Device& device, const PipelinePlace& place) {
  std::vector<int> hosts;
  if (place.stages == 1 || device.views.empty()) return hosts;
  for (int replica = 0; replica < place.replicas; ++replica) {
    const int rank = place.rank_of(replica, place.stage);
    hosts.push_back(device.views[static_cast<std::size_t>(rank)].host);
  }
  return hosts;
}

PipelineShape pipeline_shape(const DistributedOptions& options, const BatchPlan& batch, Backend& backend, int stages,
                             int ranks) {
  PipelineShape shape;
  shape.stages = stages;
  shape.ranks = ranks;
  shape.shards = batch.shards;
  shape.samples = batch.per_shard;
  shape.element = bytes_of(backend.ops().traits().activation_element);
  shape.gradient = options.gradient_precision == GradientPrecision::bf16 ? sizeof(Bf16) : sizeof(float);
  shape.overlaps = options.overlap;
  shape.bucket_bytes =
      options.bucket_mib > 0 ? static_cast<std::size_t>(options.bucket_mib * 1024 * 1024) : kBucketBytes;
  return shape;
}

}  // namespace ddp
