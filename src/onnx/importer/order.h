// The nodes that an output depends on, in topological order.
//
//   for (const OnnxNode* node : live_nodes(model, "logits")) ...
#pragma once

#include <string>
#include <vector>

#include "onnx/file/model.h"

namespace ddp {

// Keeps the file's order if possible. Throws Error(usage) for a value without a producer or with two, and for cycles.
std::vector<const OnnxNode*> live_nodes(const OnnxModel& model, const std::string& output);

}  // namespace ddp
