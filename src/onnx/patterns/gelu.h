// GELU as exporters express it before opset 20, which introduced an operator for it: x * 0.5 * (1 + Erf(x / sqrt(2))).
//
//   OnnxModel model = parse_onnx(bytes, path);
//   join_gelu(model);   // these nodes are replaced by one node "Gelu"
#pragma once

#include "onnx/file/model.h"

namespace ddp {

// The last node of each such expression becomes a Gelu of x, so that the preceding nodes lose their reader. Everything
// else is unchanged.
void join_gelu(OnnxModel& model);

}  // namespace ddp
