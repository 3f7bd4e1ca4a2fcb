// What training changes, in the memory of the backend: parameters, running statistics, and which shards each rank has. The
// optimizer's state and the position in the data are train/loop/training_run.h's.
//
//   State own = initial_state(session, job, inputs, step_plan, backend, imported);
//   own.host_parameters->fetch();   // for checkpoints
#pragma once

#include <memory>
#include <optional>

#include "backend/backend.h"
#include "backend/host_mirror.h"
#include "comm/host_share.h"
#include "job/mpi_session.h"
#include "onnx/import.h"
#include "options/batch.h"
#include "train/inputs/inputs.h"
#include "train/inputs/job.h"
#include "train/plan/plan.h"
#include "train/step/shard_statistics.h"

namespace ddp {

// On a GPU that is only described, nothing is allocated, and the pointers are null.
struct State {
  // Parameters and optimizer state that the ranks of a host keep once; null: each rank has its own.
  std::unique_ptr<HostShare> share;
  Memory parameter_memory;
  std::unique_ptr<HostMirror> host_parameters;
  std::unique_ptr<ShardStatistics> statistics;
  // That of the inputs, whose shards --balance moves between the ranks.
  BatchPlan batch;

  // The flat buffer in the backend's memory, equal on all ranks.
  float* parameters() const { return parameter_memory.at<float>(0); }
};

// That of this rank; `share`: null if it shares nothing. Throws Error as initial_weights() does.
State first_state(const Job& job, const Inputs& inputs, const Plan& plan, Backend& backend,
                  const std::optional<ImportedModel>& imported, std::unique_ptr<HostShare> share = nullptr);

// Collective. All ranks have the weights with which rank 0 begins; the caller loads those of a checkpoint.
State initial_state(const MpiSession& session, const Job& job, const Inputs& inputs, const Plan& plan, Backend& backend,
                    const std::optional<ImportedModel>& imported);

// Collective: copies the contents of rank 0's mirror to the buffer of all ranks.
void broadcast_floats(Communicator& ranks, HostMirror& mirror);

}  // namespace ddp
