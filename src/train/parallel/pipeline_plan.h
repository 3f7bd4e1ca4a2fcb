// How a pipeline divides a network, by the measured time of its stages, and whether data parallelism would be faster.
//
//   const StageSeconds seconds = measure_stages(backend, graph, network_config, layout_plan);   // of a shard, on this rank
//   const PipelineShape shape = {.stages = 2, .ranks = 4, .shards = 8};
//   const PipelinePlan plan = plan_pipeline(graph, stages, layout_plan, seconds, link, shape);
//   pipeline_text(plan, shape);     // "conv1 to pool2 | fc1, fc2; 1.21 | 0.94 ms per micro-batch"
//   estimate_text(plan, shape);     // "5.3 ms per step, ...; data parallel 4.0 ms, ...: data parallel would be faster"
//
// The estimate counts the passes and what ranks send, not the loader, the update and what else both have in common. All
// ranks are taken to be equally fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "gradients/bucket_size.h"
#include "model/cuts.h"
#include "model/graph.h"
#include "model/layout_plan.h"
#include "model/network.h"
#include "model/stages.h"

namespace ddp {

// Seconds of each stage of the network for one shard; those of joined stages are with the first of them.
struct StageSeconds {
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<bool> joined;  // with the stage before
};

// Compiles the whole network for a moment; takes some tenths of a second.
StageSeconds measure_stages(Backend& backend, const Graph& graph, const NetworkConfig& config, const LayoutPlan& plan);

struct PipelineShape {
  int stages = 1;
  int ranks = 1;
  int shards = 1;            // logical shards of the global batch
  std::int64_t samples = 0;  // of a shard
  std::size_t element = 4;   // bytes of an activation
  std::size_t gradient = 4;  // bytes of an element of gradients between ranks
  bool overlaps = true;      // gradients are summed beside backward
  std::size_t bucket_bytes = 0;
  std::vector<std::size_t> first = {};  // of each part, as the run that is resumed was divided; empty: to be chosen

  int replicas() const { return ranks / stages; }
  // Micro-batches: the shards of a replica, at most.
  int micro_batches() const { return (shards + replicas() - 1) / replicas(); }
};

// What is expected of a step.
struct StepEstimate {
  double seconds = 0;
  double activation_bytes = 0;  // sent by all ranks together
  double gradient_bytes = 0;
};

struct PipelinePlan {
  std::vector<std::size_t> first;  // the first stage of the network in each part
  std::vector<std::string> names;  // the layers of each part
  std::vector<double> seconds;     // of each part for a shard, without what it sends
  std::vector<Range> held;         // of the flat buffer
  StepEstimate pipeline;
  StepEstimate data_parallel;
  bool link_known = false;
};

// Throws Error(usage) if the network cannot be cut at these places into so many parts, each with parameters.
void check_parts(const Graph& graph, const std::vector<Cut>& cuts, int parts);

// Checks the same, without cuts that would separate joined stages. `link`: null if there is only
// one rank, which measures none; what is sent then counts as free.
PipelinePlan plan_pipeline(const Graph& graph, const std::vector<Stage>& stages, const LayoutPlan& layouts,
                           const StageSeconds& seconds, const LinkSpeed* link, const PipelineShape& shape);

std::string pipeline_text(const PipelinePlan& plan, const PipelineShape& shape);
std::string estimate_text(const PipelinePlan& plan, const PipelineShape& shape);

}  // namespace ddp
