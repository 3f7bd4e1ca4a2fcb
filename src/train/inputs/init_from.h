// Initial weights from files: safetensors files of any program, or a checkpoint of another run.
//
//   const TrainedOn then = load_initial("resnet18.safetensors", graph, {weights, running_statistics, /*new_classifier=*/true});
//   warn_of_other_inputs("--init-from resnet18.safetensors", then, this_run);
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/graph.h"

namespace ddp {

struct InitialTensors {
  std::span<float> parameters;  // flat, in the order of Graph::parameters()
  std::span<float> statistics;  // flat, in the order of Graph::statistics()
  // Leave the last layer with weights unchanged, regardless of the file.
  bool new_classifier = false;
};

// Where a parameter's first value is from, if there are weights in a file: the model (constants, and what is not trained), the
// file, or, in the layer of a new classifier, the initialization.
enum class FirstValue { model, file, initialization };
FirstValue first_value(const Graph& graph, const Parameter& parameter, bool new_classifier);

// What weights were trained on, as far as it is known: the network read (byte / 255 - mean) / deviation.
struct TrainedOn {
  std::vector<double> mean;
  std::vector<double> deviation;
  std::vector<std::string> classes;
};

// From what exports of a checkpoint say in their metadata; nothing is known from other files.
TrainedOn trained_on(const std::map<std::string, std::string>& metadata);

// `path` is a .safetensors file, a folder with model.safetensors or with a file in numbered parts, a checkpoint, or a run
// folder, whose newest intact checkpoint is used. Which tensor is which follows from names (train/inputs/match_weights.h);
// what is changed in them is logged. Throws Error(checkpoint) if a tensor is missing, unexpected, of another shape or type,
// or not finite; nothing is written in that case.
TrainedOn load_initial(const std::filesystem::path& path, const Graph& graph, const InitialTensors& into);

// Warns where weights from `source` read other values, or were trained for other classes in the order of the logits; with a
// new classifier, `now` has no classes.
void warn_of_other_inputs(const std::string& source, const TrainedOn& then, const TrainedOn& now);

}  // namespace ddp
