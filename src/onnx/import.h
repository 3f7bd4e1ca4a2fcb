// Imports networks of other programs: an ONNX file becomes a trainable graph, initialised with the file's weights.
//
//   ImportedModel model = import_onnx("net.onnx");   // graph, parameters and running statistics
//
// Supported are feed-forward image classifiers made of the layers in model/graph.h, with one float input [N, channels,
// height, width] (or [N, height, width, channels] followed by a Transpose, as exported by Keras) with fixed extents
// except N, and one output [N, classes]. Constant expressions are folded, dropout is trained with its ratio, and a
// final Softmax is dropped because the loss includes it. Parameters keep meaningful names (onnx/importer/names.h).
//
// Whether a constant of the file is a parameter, which is trained, follows from its kind and use (import_parameters.cpp):
// initializers are parameters, unless PyTorch's newer exporter says that they are not; numbers in Constant nodes, what is
// subtracted or a divisor, and one number for all channels, stay constant.
//
// Errors are one line with the file and the node: Error(data) for an unreadable or damaged file, Error(usage) for a
// model that is not supported, naming the first unsupported node.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/graph.h"

namespace ddp {

struct ImportedModel {
  Graph graph{Shape{}};
  std::vector<float> parameters;       // flat, in the order of Graph::parameters()
  std::vector<float> statistics;       // flat, in the order of Graph::statistics()
  std::vector<std::string> constants;  // of the file that are factors, addends or of a normalisation, and not trained
  std::map<std::string, std::string> metadata;  // of the file
};

struct ImportRules {
  // false: as older versions, which took tensors for constants, and left out names, because of what they are called;
  // for runs that began so.
  bool by_use = true;
};

ImportedModel import_onnx(const std::filesystem::path& path);

// The same for the content of a file as returned by read_onnx_file() of onnx/file/model.h; `path` is for messages.
ImportedModel import_onnx_bytes(const std::string& bytes, const std::filesystem::path& path, ImportRules rules = {});

}  // namespace ddp
