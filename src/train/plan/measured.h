// What is measured before a run is planned, or taken from the checkpoint that it continues or from the plan cache: which
// kernels are the fastest, how fast the ranks exchange data, and how long the stages of a pipeline would take. All ranks have
// the same. Made from the job and its inputs, and not changed after.
//
//   const Measured measured = measure(session, job, inputs, backend);
//   measured.kernels.origin;   // "timed in 1.2 s"
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "gradients/bucket_size.h"
#include "job/mpi_session.h"
#include "train/inputs/inputs.h"
#include "train/inputs/job.h"
#include "train/parallel/pipeline_plan.h"
#include "train/plan/choose_plan.h"

namespace ddp {

struct Measured {
  ChosenPlan kernels = {};                       // of images of the full size
  std::vector<std::string> smaller = {};         // the plans of smaller images, in their order
  std::optional<LinkSpeed> link = std::nullopt;  // between the ranks; nullopt: not needed
  StageSeconds stages = {};                      // of the network, for a pipeline; empty without
};

// Collective. Throws JointError(preflight) if the ranks cannot have the same plan.
Measured measure(const MpiSession& session, const Job& job, const Inputs& inputs, Backend& backend);

// The stages of the network for the samples of a shard.
std::vector<Stage> stages_of(const Graph& graph, const BatchPlan& batch, Backend& backend);

}  // namespace ddp
