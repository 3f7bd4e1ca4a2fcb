// Functions that exporters write as products: SiLU as x * Sigmoid(x), Hardswish as x * HardSigmoid(x), and Mish as
// x * Tanh(Softplus(x)).
//
//   OnnxModel model = parse_onnx(bytes, path);
//   join_swish(model);   // these nodes are replaced by one node "Swish", "HardSwish" or "Mish"
#pragma once

#include "onnx/file/model.h"

namespace ddp {

// The product becomes the joined node of x, so that the preceding nodes lose their reader. A factor that has other readers
// too is left as it is.
void join_swish(OnnxModel& model);

// Whether a HardSigmoid is PyTorch's min(max(x / 6 + 1 / 2, 0), 1); ONNX has any line.
bool is_pytorch_hard_sigmoid(const OnnxNode& node);

}  // namespace ddp
