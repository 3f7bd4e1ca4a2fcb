// 1x1 convolutions from few channels to many, in front of a batch normalisation: bf16 on tensor cores. Forward takes the
// statistics of the result while writing it. Backward computes the gradient of the result from that behind the normalisation
// while reading it, and from that both the input's and the weights' gradients: the wide tensors are read once.
//
//   if (expand_takes(Element::bf16, spec)) expand(stream, spec, {.samples = samples, .x = x, .weights = w, .y = y});
//
// Note [Tiles of rows]
// An activation is a matrix of rows (samples x positions) and channels. A block takes a chunk of rows, tile by tile: forward
// for 64 channels of the result, backward for all of them, 64 at a time. The input's channels are padded to 32 in
// shared memory. The order of additions depends only on shapes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/device/element.h"
#include "backend/op.h"

namespace ddp::cuda {

bool expand_takes(Element element, const ConvSpec& spec);

struct ExpandForward {
  std::int64_t samples = 0;
  const void* x = nullptr;
  const float* weights = nullptr;  // [outputs][channels]
  void* y = nullptr;
  // In training, of the batch normalisation; null: in evaluation.
  const BatchNormSpec* norm = nullptr;
  float* means = nullptr;       // [2][outputs], as in BatchNormForward
  float* statistics = nullptr;  // likewise
  float* partial_sums = nullptr;
};
struct ExpandBackward {
  std::int64_t samples = 0;
  const void* x = nullptr;
  const void* y = nullptr;
  const void* g = nullptr;  // the gradient of the normalisation's result before its activation
  void* dx = nullptr;
  bool add = false;  // dx is added to what is there
  const float* weights = nullptr;
  float* weights_gradient = nullptr;
  // Of the batch normalisation.
  const float* means = nullptr;
  const float* norm_weight = nullptr;
  const float* norm_weight_gradient = nullptr;
  const float* norm_bias_gradient = nullptr;
  float* partial_sums = nullptr;
};
// Floats of scratch.
std::int64_t expand_forward_sums(const ConvSpec& spec);
std::int64_t expand_backward_sums(const ConvSpec& spec);
void expand(cudaStream_t stream, const ConvSpec& spec, const ExpandForward& arguments);
void expand_backward(cudaStream_t stream, const ConvSpec& spec, const ExpandBackward& arguments);
// sums[i] = the sum of partial[chunk][i] over all chunks, for i below `count`, a multiple of 4; both are aligned to 16 bytes.
void add_up_chunks(cudaStream_t stream, const float* partial, unsigned chunks, unsigned count, float* sums);

}  // namespace ddp::cuda
