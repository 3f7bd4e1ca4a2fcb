// Weights of an ONNX model in half precision: they are stored with 16 bits, and Cast nodes make them float32 again, so that any
// program computes what it computes with the rounded weights in float32.
//
//   store_weights_as(model, "BFLOAT16", {"conv1.weight", "conv1.bias"});
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "onnx/file/model.h"

namespace ddp {

// `type`: FLOAT16 or BFLOAT16. Initializers that are not in `names` stay as they are. Throws Error(non_finite) naming one with a value
// beyond the largest number of the type.
void store_weights_as(OnnxModel& model, std::string_view type, const std::set<std::string>& names);

}  // namespace ddp
