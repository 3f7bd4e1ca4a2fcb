// All components of a run, built from its options in the same order on all ranks: data sets, batch plan, model,
// backend, layout plan, network, parameters.
//
//   Experiment experiment = prepare_experiment(session, ranks, device, options);
//   experiment.network->forward(Pass::evaluation, {experiment.parameters()}, stage.samples(0, count), results);
//   experiment.host_parameters->fetch();   // for checkpoints
//
// A failure of any rank ends the preparation on all of them with the same error (job/report.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/host_mirror.h"
#include "checkpoint/state.h"
#include "comm/communicator.h"
#include "comm/host_share.h"
#include "comm/sums/device_communicator.h"
#include "data/images/preprocessing.h"
#include "data/pipeline/augmentation.h"
#include "data/pipeline/normalization.h"
#include "data/sources/catalog.h"
#include "gradients/bucket_size.h"
#include "gradients/buckets.h"
#include "gradients/reducer_config.h"
#include "job/mpi_session.h"
#include "machine/device.h"
#include "model/graph.h"
#include "model/layout_plan.h"
#include "model/network.h"
#include "options/batch.h"
#include "options/defaults.h"
#include "options/options.h"
#include "train/batch_stage.h"
#include "train/fingerprint.h"
#include "train/image_sizes.h"
#include "train/pipeline.h"
#include "train/pipeline_plan.h"
#include "train/shard_statistics.h"
#include "train/split_linear.h"

namespace ddp {

struct Experiment {
  Options options;
  // The revision of the defaults that the run began with (options/defaults.h).
  int defaults = kLatestDefaults;
  DataSets data;
  Preprocessing preprocessing;  // of the images of `data`
  BatchPlan batch;
  Graph graph{Shape{}};
  // What this rank holds of the linear layers that --split-linear divides.
  ParameterSlices slices;
  // --pipeline: where this rank is, its part, and how the network is divided; with one stage it is not, and `pipeline` is
  // null. With several, `network` is whole, but for evaluations only.
  PipelinePlace place;
  std::unique_ptr<PipelineRank> pipeline;
  PipelinePlan pipeline_plan;
  std::string onnx;       // on rank 0: the content of the model's ONNX file; empty for a built-in model
  std::string onnx_hash;  // its hash, on all ranks
  std::vector<std::string> file_constants;  // tensors of that file that the network uses and does not train
  // The inputs of the run besides its options: data, normalisation, network.
  Fingerprint fingerprint;
  std::vector<float> scale;  // per channel: the network reads byte * scale + shift
  std::vector<float> shift;
  Device device;
  std::unique_ptr<Backend> backend;
  // All-reduce over the ranks in device memory.
  std::unique_ptr<DeviceCommunicator> sums;
  // Of gradients to be summed together, if --bucket-mib does not say it; measured on so many ranks by this run, or by the one
  // that it continues (0: by none).
  std::size_t bucket_bytes = kBucketBytes;
  int measured_bucket_ranks = 0;
  LayoutPlan plan;
  // Device memory of this rank besides activations: parameters, gradients, optimizer state, batches.
  std::size_t state_bytes = 0;
  std::string plan_text;    // the plan as all ranks received it
  std::string plan_origin;  // its origin, for the log: "timed in 1.2 s", "from the cache"
  std::unique_ptr<Network> network;
  // Of training images; and what steps on those below the full size, that of `network`, compute on.
  ProgressiveSizes sizes;
  std::vector<SmallerImages> smaller;
  // The images in device memory, if that is not host memory and is large enough.
  std::unique_ptr<ResidentImages> resident_train;
  bool keeps_images = false;          // steps could read the training images from a device's memory
  std::optional<Augmentation> edits;  // of training images, which a GPU makes; nullopt: the loader augments them
  std::unique_ptr<ResidentImages> resident_test;
  Memory parameter_memory;
  std::unique_ptr<HostMirror> host_parameters;
  // Of parameters and optimizer state, which the ranks of a host may keep once; null: each rank has its own.
  std::unique_ptr<HostShare> share;
  std::unique_ptr<ShardStatistics> statistics;

  // The flat buffer in the backend's memory, equal on all ranks.
  float* parameters() const { return parameter_memory.at<float>(0); }
  // The ranks that sum a gradient together: all, or those with the same part of a pipeline.
  Communicator& summing_ranks(Communicator& ranks) const { return pipeline ? pipeline->stage_ranks() : ranks; }
  // What this rank reads and updates in steps: the part of a pipeline, or all.
  Range held() const { return pipeline ? pipeline->held() : Range{0, graph.flat_elements()}; }
  bool holds(const Parameter& p) const { return p.offset >= held().begin && p.offset < held().end; }
};

enum class DataUse : std::uint8_t {
  all,
  sample,  // any images of the right shape: random ones replace files that cannot be read
};

// What a command provides besides the options.
struct ExperimentInputs {
  // The state of the checkpoint to continue from, whose logical shards and plan are used.
  std::optional<TrainingState> resumed = std::nullopt;
  // On rank 0: the path of a possible copy of the model's ONNX file, which is preferred over the file itself.
  std::filesystem::path model_copy = {};
  // The state of a checkpoint to evaluate, if any: images are normalised as for its training.
  const TrainingState* evaluated = nullptr;
  DataUse data = DataUse::all;
};

// Parameters are initialised; the caller loads those of a checkpoint. On a GPU that is only described, the network is
// planned and no memory is allocated: the members after `network` stay empty. Throws JointError(preflight) if options or
// data differ between ranks.
Experiment prepare_experiment(const MpiSession& session, Communicator& ranks, const Device& device,
                              const Options& options, const ExperimentInputs& inputs = {});

// The algorithm that sums gradients over the ranks.
Reduction reduction_of(const Options& options);

// Steps that are begun before the result of the first is read.
std::size_t steps_in_flight(const Experiment& e);
// The batches of a rank that are in use meanwhile.
StageConfig batch_buffers(const Experiment& e, const TrainingImages& images);

// How gradients are summed, for the number of shards that each rank has now.
ReducerConfig reducer_config(const Experiment& e);

// The size of buckets for so many ranks: the one that the resumed run measured on as many, otherwise the best for the link.
void choose_bucket_bytes(Experiment& e, const std::optional<LinkSpeed>& link, int ranks,
                         const std::optional<TrainingState>& resumed);

// The network configuration for `batch` samples.
NetworkConfig network_config(const Options& options, const Preprocessing& preprocessing, std::int64_t batch);

// Collective: copies the contents of rank 0's mirror to the buffer of all ranks.
void broadcast_floats(Communicator& ranks, HostMirror& mirror);

}  // namespace ddp
