#include "train/pipeline_setup.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "job/report.h"

namespace ddp {
namespace {

void average(Communicator& ranks, std::vector<double>& seconds) {
  ranks.all_reduce(seconds, ReduceOp::sum);
  for (double& each : seconds) each /= ranks.size();
}

}  // namespace

PipelinePlace place_of(const Experiment& e, int ranks, int rank) {
  const int stages = e.options.distributed.pipeline;
  // Other commands evaluate or show the whole network.
  if (stages == 1 || e.options.command != "train") return pipeline_place(1, ranks, rank);
  check(e.device.gpu_module == nullptr && !e.device.described, ExitCode::usage,
        "--pipeline works on CPUs only; use --device cpu, or remove it");
  return pipeline_place(stages, ranks, rank);
}

std::vector<int> hosts_of_sums(const Experiment& e) {
  std::vector<int> hosts;
  if (!e.pipeline || e.device.views.empty()) return hosts;
  for (int replica = 0; replica < e.place.replicas; ++replica) {
    const int rank = e.place.rank_of(replica, e.place.stage);
    hosts.push_back(e.device.views[static_cast<std::size_t>(rank)].host);
  }
  return hosts;
}

PipelineShape pipeline_shape(const Experiment& e, int stages, int ranks) {
  const DistributedOptions& options = e.options.distributed;
  PipelineShape shape;
  shape.stages = stages;
  shape.ranks = ranks;
  shape.shards = e.batch.shards;
  shape.samples = e.batch.per_shard;
  shape.element = bytes_of(e.backend->ops().activation_element());
  shape.gradient = options.gradient_precision == GradientPrecision::bf16 ? sizeof(Bf16) : sizeof(float);
  shape.overlaps = options.overlap;
  shape.bucket_bytes =
      options.bucket_mib > 0 ? static_cast<std::size_t>(options.bucket_mib * 1024 * 1024) : kBucketBytes;
  return shape;
}

void set_up_pipeline(const MpiSession& session, Communicator& ranks, Experiment& e, const NetworkConfig& config,
                     const std::vector<Stage>& stages, const LinkSpeed& link, const std::vector<std::int64_t>& stored) {
  StageSeconds seconds;
  together(session, [&] { seconds = measure_stages(*e.backend, e.graph, config, e.plan); });
  // All ranks divide the network alike.
  average(ranks, seconds.forward);
  average(ranks, seconds.backward);
  together(session, [&] {
    PipelineShape shape = pipeline_shape(e, e.place.stages, ranks.size());
    shape.first.assign(stored.begin(), stored.end());
    if (e.options.distributed.bucket_mib == 0) {
      shape.bucket_bytes = best_bucket_bytes(link, static_cast<std::size_t>(e.graph.flat_elements()) * shape.gradient);
    }
    e.pipeline_plan = plan_pipeline(e.graph, stages, e.plan, seconds, &link, shape);
  });
  e.pipeline = std::make_unique<PipelineRank>(e.place, ranks, e.pipeline_plan.held);
  together(session, [&] {
    const auto stage = static_cast<std::size_t>(e.place.stage);
    const std::vector<std::size_t>& first = e.pipeline_plan.first;
    NetworkConfig part = config;
    part.stages = {static_cast<std::int64_t>(first[stage]),
                   static_cast<std::int64_t>(e.place.last() ? stages.size() : first[stage + 1])};
    e.statistics->update_only(statistics_of(e.graph, stages, part.stages));
    const std::int64_t kept = shards_in_flight(e.place, e.batch.shards_of(e.place.replica).size());
    for (std::int64_t copy = 0; copy < kept; ++copy) {
      e.pipeline->networks.push_back(std::make_unique<Network>(*e.backend, e.graph, part, e.plan));
    }
  });
}

}  // namespace ddp
