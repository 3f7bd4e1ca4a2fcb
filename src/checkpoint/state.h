// The state of a training run: everything besides the tensors that is needed to continue as if it had never stopped.
//
//   TrainingState state;
//   state.model = "lenet";
//   state.step = 468;
//   std::string text = to_json(state);                       // state.json
//   TrainingState same = parse_state(text, "state.json");
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace ddp {

struct TrainingState {
  int format_version = kCheckpointFormatVersion;
  std::string model;
  std::string dataset;
  std::string optimizer = "sgd";  // default for older files, which do not record it
  std::uint64_t seed = 0;
  std::int64_t step = 0;           // updates since the start of training
  std::int64_t epoch = 0;          // the epoch that the next step belongs to, from 0
  std::int64_t step_in_epoch = 0;  // updates in that epoch
  std::int64_t global_batch = 0;   // samples
  std::int64_t samples_seen = 0;   // since the start of training
  int logical_shards = 0;
  double best_accuracy = -1;       // the highest validation accuracy so far, 0 to 1; -1: none measured
  double epoch_loss_sum = 0;       // over the samples of the running epoch so far
  std::int64_t epoch_samples = 0;  // of the running epoch so far
  std::vector<std::string>
      classes;       // class names in the order of the labels, as escape_name() has them; empty: the labels
  std::string plan;  // the execution plan, as its owner wrote it
  std::map<std::string, std::string> plans;  // likewise of smaller images, by their size (--progressive-size)
  std::string config;                        // the effective configuration, as --dump-config prints it

  // The network's input, for export. Checkpoints of older versions lack it.
  std::vector<std::int64_t> image;  // [channels, height, width]
  std::int64_t class_count = 0;
  std::vector<double> mean;       // of each channel: the network reads (byte / 255 - mean) / deviation
  std::vector<double> deviation;  // "std" in the file
  std::string model_hash;         // XXH3-128 of RUN/model.onnx, if the model came from an ONNX file; else empty

  // Fingerprints of the run's inputs, by name (train/inputs/fingerprint.h); empty in checkpoints of older versions.
  std::map<std::string, std::string> fingerprint;

  // In fp16, and the step from which on it is in effect (optim/loss_scale.h); 0: of another precision.
  double loss_scale = 0;
  std::int64_t loss_scale_since = 0;

  // What was measured at the start of the run and determines the order of additions, besides the plan, where that is not fixed
  // anyway (--deterministic): the bytes of gradients that are summed together on so many ranks, and the first stage of the
  // network in each part of a pipeline. Checkpoints of older versions lack it.
  std::int64_t bucket_bytes = 0;  // 0: not measured
  int bucket_ranks = 0;
  std::vector<std::int64_t> pipeline_first;

  // The revision of the defaults that the run began with (options/defaults.h).
  int defaults = 0;

  friend bool operator==(const TrainingState&, const TrainingState&) = default;
};

// JSON is UTF-8: values that are not, such as the name of a folder, are stored escaped (base/text/utf8.h), and "escaped" lists
// their keys.
std::string to_json(const TrainingState& state);

// Throws Error(checkpoint) naming the first key that is missing, of another type or out of range, and for another
// format version; `path` is used in the message.
TrainingState parse_state(const std::string& text, const std::filesystem::path& path);

}  // namespace ddp
