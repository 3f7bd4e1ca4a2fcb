// The first convolution of a network on images with few channels (the stem), on tensor cores in bf16: one kernel forward,
// with bias and ReLU, and one for the gradients of weights and bias. Nothing wants the gradient of the images. cuDNN pads
// the channels in memory, and conv_mma.h pads those of each tap to 8, of which most are zero.
//
// Note [Units of lines]
// In nhwc the values that a line of the window reads, of all its taps and channels, are contiguous: 21 for 7x7 taps of 3
// channels. The depth of the matrix product is a sequence of units of 8 consecutive values, some for each line of the
// window, whose last unit is filled up with zero weights. Pixel x of the result reads them stride * channels * x values
// further on. Lanes read pairs of values, so this must be even:
//   if all pixels begin at even places but the padding is odd    one more zero weight in front of each line
//   if every other pixel begins at an odd place                  shared memory holds a second copy, one value further on
// A block keeps the lines that its band of the result needs in shared memory as they are, with zeros around them. The
// values that meet zero weights must be finite, as images are.
//   forward   [pixels][units] x [units][outputs]
//   weights   [outputs][pixels] x [pixels][units]; one more unit, of ones, gives the bias's gradient
// The order of additions depends only on shapes.
//
//   if (stem_conv_takes(spec)) stem_conv_forward(stream, spec, {.x = x, .weights = weights, .bias = bias, .y = y});
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/op.h"

namespace ddp::cuda {

// 1 to 4 channels, 8 to 128 outputs in steps of 8, stride up to 4, no input gradient, no pooling, and bands that fit into
// shared memory.
bool stem_conv_takes(const ConvSpec& spec);

struct StemForward {
  const void* x = nullptr;
  const float* weights = nullptr;  // in PyTorch's layout
  const float* bias = nullptr;     // null: 0
  void* y = nullptr;
};
void stem_conv_forward(cudaStream_t stream, const ConvSpec& spec, const StemForward& arguments);

struct StemBackward {
  const void* x = nullptr;
  const void* y = nullptr;  // with ReLU
  const void* dy = nullptr;
  float* partial_sums = nullptr;  // scratch of stem_conv_partial_sums(spec)
  float* weight_gradient = nullptr;
  float* bias_gradient = nullptr;  // null: there is no bias
};
// In floats; 0 if the gradient's bands do not fit.
std::int64_t stem_conv_partial_sums(const ConvSpec& spec);
void stem_conv_backward(cudaStream_t stream, const ConvSpec& spec, const StemBackward& arguments);

}  // namespace ddp::cuda
