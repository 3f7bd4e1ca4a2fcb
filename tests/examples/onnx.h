// Names that the examples in the headers of onnx use.
#pragma once

#include <span>
#include <string>

#include "model/graph.h"
#include "onnx/file/file_context.h"
#include "onnx/file/model.h"
#include "onnx/patterns/fold.h"

namespace ddp::onnx_examples {

extern const Graph graph;
extern OnnxModel model;
extern const OnnxNode node;
extern const OnnxTensor weight;
extern const FileContext context;
extern const std::string bytes;
extern const std::span<const float> parameters, statistics;

}  // namespace ddp::onnx_examples
