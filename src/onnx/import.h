// Networks of other programs: an ONNX file becomes a graph to train, with the file's weights as first weights.
//
//   ImportedModel model = import_onnx("net.onnx");   // graph, parameters and running statistics
//
// What can be imported: feed-forward image classifiers of the layers of model/graph.h, of one float input
// [N, channels, height, width] (or [N, height, width, channels] with a Transpose behind it, as Keras exports them)
// whose extents beside N are fixed, and one output [N, classes]. Constants are computed, dropout trains with its ratio,
// a Softmax at the end is left out as the loss has it. Parameters keep their names where these are names
// (onnx/names.h).
//
// Errors are one line with the file and the node: Error(data) for a file that cannot be read or is damaged,
// Error(usage) for a model that cannot be trained here, naming the first node that is not supported.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "model/graph.h"

namespace ddp {

struct ImportedModel {
  Graph graph{Shape{}};
  std::vector<float> parameters;  // flat, as Graph::parameters() lays them out
  std::vector<float> statistics;  // flat, as Graph::statistics() lays them out
};

ImportedModel import_onnx(const std::filesystem::path& path);

// The same of a file's content, as read_onnx_file() of onnx/model.h gives it; `path` is for messages.
ImportedModel import_onnx_bytes(const std::string& bytes, const std::filesystem::path& path);

}  // namespace ddp
