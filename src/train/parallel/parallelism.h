// How the ranks divide the work of a step: the logical shards of the global batch over replicas (options/batch.h), the layers
// of the network over the stages of a pipeline, the outputs of linear layers over the ranks, and the update of the parameters
// over the ranks of a host. One value, from which all others take what a rank has to do.
//
//   const Parallelism parallelism = divide_step(options, device, graph, place, pipeline_plan.held);
//   parallelism.held;                      // what this rank reads and updates in steps
//   parallelism.slices.any();              // whether linear layers are divided
#pragma once

#include <vector>

#include "backend/backend.h"
#include "base/partition.h"
#include "comm/sums/device_communicator.h"
#include "machine/device.h"
#include "model/graph.h"
#include "options/batch.h"
#include "options/options.h"
#include "train/parallel/pipeline.h"
#include "train/parallel/pipeline_plan.h"
#include "train/parallel/split_linear.h"

namespace ddp {

struct Parallelism {
  PipelinePlace place;       // one stage: there is no pipeline
  std::vector<Range> parts;  // of the flat buffer, for each stage; empty without a pipeline
  Range held;                // the part of this rank; all without a pipeline
  ParameterSlices slices;    // what this rank holds of the linear layers that --split-linear divides
  // The ranks of a host keep one copy of parameters and optimizer state, if they can share memory, and update a part each.
  bool shares_state = false;

  bool pipelined() const { return place.stages > 1; }
  bool holds(const Parameter& p) const { return p.offset >= held.begin && p.offset < held.end; }
};

// `graph` says which layers are divided; `parts`: see Parallelism.
Parallelism divide_step(const Options& options, const Device& device, const Graph& graph, const PipelinePlace& place,
                        std::vector<Range> parts);

// The algorithm that sums gradients over the ranks.
Reduction reduction_of(const Options& options);

// The hosts of the ranks that sum a gradient together, for SumOrder; empty: those of all ranks.
std::vector<int> hosts_of_sums(const Device& device, const PipelinePlace& place);

// The shape of a pipeline of so many stages on so many ranks.
PipelineShape pipeline_shape(const DistributedOptions& options, const BatchPlan& batch, Backend& backend, int stages,
                             int ranks);

}  // namespace ddp
