// GELU as exporters write it before opset 20, which has an operator for it: x * 0.5 * (1 + Erf(x / sqrt(2))).
//
//   OnnxModel model = parse_onnx(bytes, path);
//   join_gelu(model);   // such nodes are one node "Gelu" now
#pragma once

#include "onnx/model.h"

namespace ddp {

// The last node of each such expression becomes a Gelu of x; those before it lose a reader. What does not match is left
// as it is.
void join_gelu(OnnxModel& model);

}  // namespace ddp
