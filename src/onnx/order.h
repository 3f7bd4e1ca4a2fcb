// The nodes that an output needs, each behind those whose outputs it reads.
//
//   for (const OnnxNode* node : live_nodes(model, "logits")) ...
#pragma once

#include <string>
#include <vector>

#include "onnx/model.h"

namespace ddp {

// In the file's order where that is possible. Throws Error(usage) for a value that nothing makes, one that two nodes
// make, and nodes in a cycle.
std::vector<const OnnxNode*> live_nodes(const OnnxModel& model, const std::string& output);

}  // namespace ddp
