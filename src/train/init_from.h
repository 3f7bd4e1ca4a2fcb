// First weights from a file: a safetensors file of any program, or a checkpoint of another run.
//
//   load_initial("resnet18.safetensors", graph, {parameters, statistics, /*new_classifier=*/true});
#pragma once

#include <filesystem>
#include <span>

#include "model/graph.h"

namespace ddp {

struct InitialTensors {
  std::span<float> parameters;  // flat, as Graph::parameters() lays them out
  std::span<float> statistics;  // flat, as Graph::statistics() lays them out
  // Leave the last layer with weights as it is, whatever the file holds for it.
  bool new_classifier = false;
};

// `path` is a .safetensors file, a checkpoint, or a run folder, whose newest good checkpoint it takes. Names and shapes
// must be the graph's; PyTorch's counters "...num_batches_tracked" are passed over. Throws Error(checkpoint) naming the
// first tensor that is missing, is too much, or has another shape or type; nothing is written then.
void load_initial(const std::filesystem::path& path, const Graph& graph, const InitialTensors& into);

}  // namespace ddp
