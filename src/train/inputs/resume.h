// Resuming: finds the checkpoint to continue from, for all ranks, and checks that this run matches the one that wrote
// it.
//
//   std::unique_ptr<RunFolder> folder;   // set on rank 0
//   const std::optional<ResumePoint> point = find_resume_point(session, ranks, options, folder);
//   if (point) check_same_data(options, inputs, point->state);
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/state.h"
#include "comm/communicator.h"
#include "job/mpi_session.h"
#include "options/batch.h"
#include "options/options.h"
#include "run_folder/run_folder.h"

namespace ddp {

struct Inputs;

// Collective. Rank 0, the only one that needs access to the run folder, locks it in `folder` and finds the checkpoint
// of --resume; the others receive the result. nullopt for a new run.
std::optional<ResumePoint> find_resume_point(const MpiSession& session, Communicator& ranks, const Options& options,
                                             std::unique_ptr<RunFolder>& folder);

// The logical shards of a resumed run: as many as the checkpoint has; or one per rank if these are fewer than ranks, or if
// statistics over the global batch need it; or another number that --logical-shards gives.
int resumed_shards(const Options& options, const TrainingState& state, int ranks);
// What changes for a run with another number of shards than the checkpoint's, as a sentence; or "".
std::string changed_shards(const Options& options, const Inputs& inputs, const TrainingState& state);

// The checks below throw Error(checkpoint).

// The options that a resumed run must keep: model, data set, optimizer, seed, global batch.
void check_same_run(const Options& options, const TrainingState& state, const BatchPlan& plan);
// With --deterministic the number of shards that have running statistics of their own.
void check_same_shards(const Options& options, const Inputs& inputs, const TrainingState& state);
// The training data, their pixels and the layers; labels and sample order are part of the checkpoint's cursor. Logs one
// line if an older program stored no fingerprint.
void check_same_data(const Options& options, const Inputs& inputs, const TrainingState& state);
// That the epoch still has the step at which it continues.
void check_same_epoch(const BatchPlan& plan, const TrainingState& state);
// The names of the classes, if both sides have them.
void check_same_classes(const std::vector<std::string>& classes, const TrainingState& state);
// The ONNX file of the model.
void check_same_model(const Options& options, const Inputs& inputs, const TrainingState& state);
// The layers of the network and their settings.
void check_same_network(const Options& options, const Inputs& inputs, const TrainingState& state);

// All differences between the checkpoint's options and these, for the log; empty if there are none.
std::string changed_options(const TrainingState& state, const Options& options);
// Those that change which kernels a step needs.
std::string changed_kernel_options(const TrainingState& state, const Options& options);

}  // namespace ddp
