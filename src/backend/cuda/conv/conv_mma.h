// Convolutions of few channels on tensor cores: one kernel forward and one backward, including bias, ReLU and 2x2
// average pooling, where cuDNN uses several kernels and pads channels in memory.
//
// Note [Tiles of units]
// A block loads a tile of the image, some lines of one sample with their borders, into shared memory as units of 8
// channels; missing channels of the last unit, and pixels outside the image, are zero. The depth of the matrix product
// is a sequence of units: unit q is 8 channels of one tap of the kernel, at a fixed offset from each output pixel. Two
// units are one step of a matrix product (Note [Fragments]).
//   forward   [pixels][units] x [units][outputs]
//   data      the same over the gradient, with the kernel turned around
//   weights   [outputs][pixels] x [pixels][units]; one more unit, of ones, gives the bias's gradient
// The order of additions depends only on shapes.
//
// With activations in fp32 (Note [Parts] in parts.h) a tile has the parts of a pixel in its units, one after the other.
//
//   const std::uint32_t parts = parts_of(precision);
//   if (conv_mma_takes(spec, parts)) conv_mma_forward(stream, spec, parts, {.x = x, .packed = packed, .bias = bias, .y = y});
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/op.h"

namespace ddp::cuda {

// Whether the kernels support the convolution: tiles fit into shared memory, and stride 1 if the input gradient is
// needed. `parts`: parts_of() the precision.
bool conv_mma_takes(const ConvSpec& spec, std::uint32_t parts);

// The form of the weights that both kernels read.
PackedShape conv_mma_packed(const ConvSpec& spec, std::uint32_t parts);

// `open`: with pooling, a byte per output element whose bit i says whether ReLU passes the gradient of position i
// (upper left, upper right, lower left, lower right). May be null.
struct ConvMmaForward {
  const void* x = nullptr;
  const void* packed = nullptr;
  const float* bias = nullptr;  // null: 0
  void* y = nullptr;
  std::uint8_t* open = nullptr;
};
void conv_mma_forward(cudaStream_t stream, const ConvSpec& spec, std::uint32_t parts, const ConvMmaForward& arguments);

struct ConvMmaGradient {
  const void* dy = nullptr;
  const void* y = nullptr;             // with ReLU, without pooling
  const std::uint8_t* open = nullptr;  // with pooling
};
struct ConvMmaBackward {
  const void* x = nullptr;
  const void* packed = nullptr;
  float* partial_sums = nullptr;  // scratch of conv_mma_partial_sums(spec, parts)
  float* weight_gradient = nullptr;
  float* bias_gradient = nullptr;  // null: there is no bias
  void* dx = nullptr;              // if the spec has an input gradient
  bool add = false;                // dx is added to what is there
};
// In floats.
std::int64_t conv_mma_partial_sums(const ConvSpec& spec, std::uint32_t parts);
void conv_mma_backward(cudaStream_t stream, const ConvSpec& spec, std::uint32_t parts, const ConvMmaGradient& gradient,
                       const ConvMmaBackward& arguments);

}  // namespace ddp::cuda
