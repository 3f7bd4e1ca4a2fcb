// Initial weights from a file: a safetensors file of any program, or a checkpoint of another run.
//
//   load_initial("resnet18.safetensors", graph, {weights, running_statistics, /*new_classifier=*/true});
#pragma once

#include <filesystem>
#include <span>

#include "model/graph.h"

namespace ddp {

struct InitialTensors {
  std::span<float> parameters;  // flat, in the order of Graph::parameters()
  std::span<float> statistics;  // flat, in the order of Graph::statistics()
  // Leave the last layer with weights unchanged, regardless of the file.
  bool new_classifier = false;
};

// `path` is a .safetensors file, a checkpoint, or a run folder, whose newest intact checkpoint is used. Names and
// shapes must match the graph; PyTorch's counters "...num_batches_tracked" are ignored. Throws Error(checkpoint) naming
// the first tensor that is missing, unexpected, or of another shape or type; nothing is written in that case.
void load_initial(const std::filesystem::path& path, const Graph& graph, const InitialTensors& into);

}  // namespace ddp
