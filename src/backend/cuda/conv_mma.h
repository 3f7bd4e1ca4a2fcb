// Convolutions of few channels on tensor cores, bf16: what cuDNN does with channels padded in memory, in several
// kernels each, these do in one for each direction, with bias, ReLU and 2x2 average pooling inside.
//
// Note [Tiles of units]
// A block brings a tile of the image, some lines of one sample with their borders, into shared memory as units of 8
// channels; what is missing in the last unit, and around the image, is zero there. A product's depth is then a row of
// units: unit q stands for 8 channels of one of the kernel's taps, and lies at the same distance from each output
// pixel. Two units are a step of a matrix product (Note [Fragments]).
//   forward   [pixels][units] x [units][outputs]
//   data      the same over the gradient, with the kernel turned around
//   weights   [outputs][pixels] x [pixels][units]; one more unit, of ones, gives the bias's gradient
// Sums are taken in an order that depends on shapes alone.
//
//   if (conv_mma_takes(spec)) conv_mma_forward(stream, spec, {.x = x, .packed = packed, .bias = bias, .y = y});
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/op.h"

namespace ddp::cuda {

// Whether the kernels can do it: tiles fit into shared memory, and stride 1 where the input's gradient is wanted.
bool conv_mma_takes(const ConvSpec& spec);

// The weights as forward and data read them, and how many bytes each takes; a null pointer is left out.
std::size_t conv_mma_forward_bytes(const ConvSpec& spec);
std::size_t conv_mma_data_bytes(const ConvSpec& spec);
void conv_mma_pack(cudaStream_t stream, const ConvSpec& spec, const float* weights, void* forward, void* data);

// `open`: with pooling a byte for each output element, bit i of which says whether ReLU lets the gradient of position i
// (upper left, upper right, lower left, lower right) pass. May be null.
struct ConvMmaForward {
  const void* x = nullptr;
  const void* packed = nullptr;
  const float* bias = nullptr;  // null: 0
  void* y = nullptr;
  std::uint8_t* open = nullptr;
};
void conv_mma_forward(cudaStream_t stream, const ConvSpec& spec, const ConvMmaForward& arguments);

struct ConvMmaGradient {
  const void* dy = nullptr;
  const void* y = nullptr;             // with ReLU, without pooling
  const std::uint8_t* open = nullptr;  // with pooling
};
void conv_mma_data(cudaStream_t stream, const ConvSpec& spec, const ConvMmaGradient& gradient, const void* packed,
                   void* dx);

// Floats that the next one needs as room.
std::int64_t conv_mma_partial_sums(const ConvSpec& spec);
void conv_mma_weights(cudaStream_t stream, const ConvSpec& spec, const ConvMmaGradient& gradient, const void* x,
                      float* partial_sums, float* weight_gradient, float* bias_gradient);

}  // namespace ddp::cuda
