// The plan of a run: its operators and their memory, the division of a step among the ranks, and the buckets of gradients.
// Made from the job, its inputs and what was measured, the same on all ranks but for the part of each, and not changed after.
//
//   const Plan step_plan = make_plan(job, inputs, backend, measured);
//   step_plan.parallelism.held;
//   Network own(backend, inputs.graph, step_plan.config, step_plan.kernels.layouts);
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/layout_plan.h"
#include "model/network.h"
#include "model/stages.h"
#include "train/inputs/inputs.h"
#include "train/inputs/job.h"
#include "train/parallel/parallelism.h"
#include "train/parallel/pipeline_plan.h"
#include "train/plan/measured.h"
#include "train/plan/sums.h"

namespace ddp {

// The layouts and kernels of a network, and the text that checkpoints store.
struct PlannedNetwork {
  std::string text;
  LayoutPlan layouts;
};

struct Plan {
  std::vector<Stage> stages;            // of the network
  NetworkConfig config;                 // of the whole network
  PlannedNetwork kernels;               // of images of the full size
  std::string origin;                   // for the log: "timed in 1.2 s", "from the cache"
  std::vector<PlannedNetwork> smaller;  // of smaller images, in the order of Inputs::smaller
  // Device memory of this rank besides activations: parameters, gradients, optimizer state, batches.
  std::size_t state_bytes = 0;
  PipelinePlan pipeline;  // the division by --pipeline; empty without
  Parallelism parallelism;
  BucketSize buckets;

  // With a pipeline, the stages of the network that this rank trains.
  Range own_stages() const;
};

// Local. Throws Error(out_of_memory) if the run does not fit the device, and Error(usage) if the network cannot be divided into
// the stages of a pipeline.
Plan make_plan(const Job& job, const Inputs& inputs, Backend& backend, const Measured& measured);

}  // namespace ddp
