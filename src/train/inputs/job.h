// The job of a run: its ranks, their devices, and the settings that all ranks agree on. It is the first of the values that a
// run is built from (train/loop/prepared_run.h).
//
//   const Job job = agree_on_job(session, ranks, device, options, {.data = DataUse::sample});
//   const BatchPlan batch_plan = resolve_batch(job.batch, job.size(), /*train_samples=*/60000, job.stages());
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "checkpoint/state.h"
#include "comm/communicator.h"
#include "job/mpi_session.h"
#include "machine/device.h"
#include "options/defaults.h"
#include "options/options.h"
#include "train/parallel/pipeline.h"

namespace ddp {

enum class DataUse : std::uint8_t {
  all,
  sample,  // any images of the right shape: random ones replace files that cannot be read
};

// What a command provides besides the options.
struct RunStart {
  // The state of the checkpoint to continue from, whose logical shards and plan are used.
  std::optional<TrainingState> resumed = std::nullopt;
  // On rank 0: the path of a possible copy of the model's ONNX file, which is preferred over the file itself.
  std::filesystem::path model_copy = {};
  // On rank 0: where the run of a checkpoint says which images evaluate, if it divided them.
  std::filesystem::path split = {};
  // The state of a checkpoint to evaluate, if any: images are normalised as for its training.
  std::optional<TrainingState> evaluated = std::nullopt;
  DataUse data = DataUse::all;
};

struct Job {
  Communicator& ranks;
  Device device = {};
  // Those that the run stores: what --frozen-statistics is by default is filled in if --freeze is given.
  Options options = {};
  // The revision of the defaults that the run began with (options/defaults.h).
  int defaults = kLatestDefaults;
  // That of the options, in as many logical shards as the checkpoint of a resumed run says.
  BatchOptions batch = {};
  RunStart start = {};

  int rank() const { return ranks.rank(); }
  int size() const { return ranks.size(); }
  bool on_gpu() const { return device.gpu_module != nullptr; }
  // Neither on a GPU nor planned for one.
  bool on_cpu() const { return !on_gpu() && !device.described; }
  bool evaluates() const { return start.evaluated.has_value(); }
  // The stages of its pipeline. Other commands than train evaluate or show the whole network.
  int stages() const { return options.command == "train" ? options.distributed.pipeline : 1; }
};

// Collective. Throws JointError(preflight) if the ranks have different options, and Error(checkpoint) for impossible logical
// shards of a checkpoint.
Job agree_on_job(const MpiSession& session, Communicator& ranks, const Device& device, const Options& options,
                 RunStart start = {});

// Where this rank is in the pipeline. Throws Error(usage) for GPUs, and if the stages do not divide the ranks.
PipelinePlace place_of(const Job& job);

// --frozen-statistics, or what it is by default in this run.
bool keeps_frozen_statistics(const OptimizerOptions& options, int defaults);

}  // namespace ddp
