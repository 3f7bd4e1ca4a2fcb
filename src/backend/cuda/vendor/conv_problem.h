// The computation of a convolution kernel: the result, or the gradient of the input or of the weights.
//
//   const ConvProblem problem{spec, ConvDirection::data, Precision::bf16};
#pragma once

#include "backend/gpu.h"
#include "backend/op.h"

namespace ddp::cuda {

enum class ConvDirection { forward, data, weights };

struct ConvProblem {
  ConvSpec spec;  // only the fields of the convolution itself are used
  ConvDirection direction = ConvDirection::forward;
  Precision precision = Precision::fp32;
  bool add = false;  // with ConvDirection::data: the gradient is added to what is there
};

// Addresses of tensors on the device: activations nhwc, weights [outputs][kernel_h][kernel_w][channels / groups].
struct ConvPointers {
  const void* x = nullptr;  // for the data gradient: the result
  const void* w = nullptr;  // for the weight gradient: the result
  const void* y = nullptr;  // for the gradients: dy
};

}  // namespace ddp::cuda
