// A run from its options to the first step, built forward only: each value is made from those before it, in the same order on
// all ranks, and all but the last two are not changed after. Functions take the values that they read.
//
//   PreparedRun prepared(session, ranks, device, options);
//   prepared.engine.network->forward(Pass::evaluation, {prepared.state.parameters()}, stage.samples(0, count), results);
//
// A failure of any rank ends the preparation on all of them with the same error (job/report.h). On a GPU that is only
// described, the network is planned and no memory is allocated.
#pragma once

#include <memory>
#include <optional>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "job/mpi_session.h"
#include "machine/device.h"
#include "onnx/import.h"
#include "options/options.h"
#include "train/inputs/inputs.h"
#include "train/inputs/job.h"
#include "train/loop/engine.h"
#include "train/loop/state.h"
#include "train/plan/measured.h"
#include "train/plan/plan.h"

namespace ddp {

struct PreparedRun {
  // Collective. The weights are initialised; the caller loads those of a checkpoint.
  PreparedRun(const MpiSession& session, Communicator& ranks, const Device& device, const Options& options,
              const RunStart& start = {});
  ~PreparedRun() = default;
  PreparedRun(const PreparedRun&) = delete;
  PreparedRun& operator=(const PreparedRun&) = delete;

  const Job job;        // ranks, devices, settings
  const Inputs inputs;  // data, network, where weights come from
  const std::unique_ptr<Backend> backend;
  const Measured measured;  // kernels, link, stages
  const Plan plan;          // operators, memory, parallelism, buckets
  State state;              // what training changes
  Engine engine;            // what changes it

 private:
  PreparedRun(const MpiSession& session, Job agreed, std::optional<ImportedModel> imported);
};

// How gradients are summed, for the number of shards that each rank has now.
ReducerConfig reducer_config(const PreparedRun& run);

}  // namespace ddp
