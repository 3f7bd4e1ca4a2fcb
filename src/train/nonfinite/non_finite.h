// What is known and kept of a step whose loss or gradient was not finite.
//
//   const NonFinite found = find_non_finite(broken_step, ranks, stage, batch, samples);   // collective
//   found.text;     // "first in the output of layer 'conv2' on rank 1, samples 17, 203"
//   write_non_finite(path, found, run.capture(), run.weights(), onnx);                    // on rank 0
//   NonFinite same = read_non_finite(path);                                               // for `ddp_train replay`
//
// The folder contains batch.json, pixels.bin and weights.safetensors, the state.json and config.cfg of the run and, for an
// ONNX model, model.onnx: everything needed to compute the step again, without the data set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/state.h"
#include "checkpoint/tensor_view.h"
#include "comm/communicator.h"
#include "train/inputs/preprocessing.h"
#include "train/parallel/pipeline.h"
#include "train/step/batch_buffers.h"
#include "train/step/batch_stage.h"

namespace ddp {

struct NonFinite {
  std::int64_t step = 0;   // its number, from 1
  std::int64_t epoch = 0;  // from 1
  double lr = 0;
  double loss = 0;   // mean over the global batch, as find_non_finite() computes it or as it was in the step
  std::string text;  // where it began
  std::string weights_hash;
  // The global batch, in the order of the shards.
  std::vector<std::int64_t> shards;  // samples of each
  std::int64_t shard_batch = 0;      // for how many samples the network was compiled
  Shape image;                       // of one sample; empty in folders of older versions: that of state.json
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint32_t> indices;
  std::vector<std::string> files;  // of these samples; empty if they have none, and in folders of older versions
  std::vector<std::int32_t> labels;
  std::vector<std::uint64_t> keys;
  std::vector<std::int32_t> other_labels;  // of mixed samples, or none
  std::vector<float> label_weights;
  // The network reads byte * scale + shift.
  std::vector<float> scale;
  std::vector<float> shift;
};

// What a step computes on a rank.
struct SearchedStep {
  Backend& backend;
  const TrainingImages& images;
  const BatchPlan& plan;
  const PipelinePlace& place;
  const PixelValues& pixels;
  bool mixed = false;  // samples have two labels
  // The whole network, which the first stage of a pipeline compiles for the search.
  const Graph& graph;
  const NetworkConfig& config;
  const LayoutPlan& layouts;
  // Whole on all ranks: those of the network in the backend's memory, and the same by name in host memory.
  const float* parameters = nullptr;
  std::span<const float> statistics;
  std::span<const TensorView> named_parameters;
  std::span<const TensorView> named_weights;  // with running statistics
};

// Collective: every rank computes its share of the batch once more, value by value; the weights stay as they are.
// `stage` is used for it, so no step may be in flight. Pixels, labels and keys of all ranks are gathered on all of them.
NonFinite find_non_finite(const SearchedStep& step, Communicator& ranks, BatchStage& stage, const Batch& batch,
                          std::int64_t samples);

// "sample 17" or "samples 17, 203, 411 and 5 more", and behind each the file that `file_of` returns, if any:
// "sample 17 (data/train/cat/7.jpg)".
std::string sample_list(std::span<const std::uint32_t> indices,
                        const std::function<std::string(std::uint32_t)>& file_of = {});

// RUN/nonfinite-7, or with a number behind it if an earlier run has left one of that name.
std::filesystem::path non_finite_folder(const std::filesystem::path& run, std::int64_t step);
// Writes the folder. Throws Error(checkpoint) if it cannot.
void write_non_finite(const std::filesystem::path& folder, const NonFinite& found, const TrainingState& state,
                      std::span<const TensorView> weights, const std::string& onnx);
// Throws Error(checkpoint) if the folder has no batch.json or its files do not belong together.
NonFinite read_non_finite(const std::filesystem::path& folder);

}  // namespace ddp
