// Resuming: the checkpoint to continue from, as all ranks see it, and the checks that this run continues the one that
// wrote it.
//
//   std::unique_ptr<RunFolder> folder;   // set on rank 0
//   const std::optional<ResumePoint> point = find_resume_point(session, ranks, options, folder);
//   if (point) check_same_data(experiment, point->state);
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
#include "train/experiment.h"

namespace ddp {

// Collective. Rank 0, the only one that needs to see the run folder, locks it into `folder` and finds what --resume
// means there; the others receive the result. Nothing for a new run.
std::optional<ResumePoint> find_resume_point(const MpiSession& session, Communicator& ranks, const Options& options,
                                             std::unique_ptr<RunFolder>& folder);

// The checks below throw Error(checkpoint).

// The options that a resumed run must keep: model, data set, optimizer, seed, batch.
void check_same_run(const Options& options, const TrainingState& state, const BatchPlan& plan);
// The training data, their pixels and the layers. The labels and the order of samples belong to the checkpoint's
// cursor. One line is logged if an older program stored no fingerprint of them.
void check_same_data(const Experiment& experiment, const TrainingState& state);
// The names of the classes, if both sides have them.
void check_same_classes(const std::vector<std::string>& classes, const TrainingState& state);
// The ONNX file of the model.
void check_same_model(const Experiment& experiment, const TrainingState& state);
// The layers of the network and their settings.
void check_same_network(const Experiment& experiment, const TrainingState& state);

// What differs between the checkpoint's options and these, for people; empty: nothing.
std::string changed_options(const TrainingState& state, const Options& options);

}  // namespace ddp
