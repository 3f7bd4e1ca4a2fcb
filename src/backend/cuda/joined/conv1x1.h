// 1x1 convolutions between batch normalisations, in bf16 on tensor cores, of many channels: whole slices of 64. Forward takes the
// statistics of the result while writing it, and may normalise what it reads, so that the result of the normalisation in front
// is not stored. Backward computes the gradient of the result from that behind the normalisation while reading it, and from that
// both the input's and the weights' gradients; with a normalisation in front it also takes that one's sums.
//
//   if (conv1x1_takes(Element::bf16, spec)) conv1x1(stream, spec, {.samples = samples, .x = x, .weights = w, .y = y});
//
// See Note [Tiles of rows] of row_tiles.cuh. Forward a block computes 64 channels of the result from
// all of the input; backward those of 64 channels of the input from all of the result. The order of additions depends only on
// shapes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/device/element.h"
#include "backend/cuda/joined/joined.h"
#include "backend/cuda/norm/norm.h"
#include "backend/op.h"

namespace ddp::cuda {

bool conv1x1_takes(Element element, const ConvSpec& spec);
// Likewise, with a normalisation in front.
bool conv1x1_takes_behind_norm(Element element, const ConvSpec& spec);

// Shared memory that a block of the backward kernel needs.
std::size_t conv1x1_shared_bytes(const ConvSpec& spec);

// Arguments of both directions.
struct Conv1x1Arguments {
  std::int64_t samples = 0;
  const void* x = nullptr;
  const float* weights = nullptr;  // [outputs][channels]
  void* y = nullptr;               // the convolution's result, which forward writes
  // The normalisation in front; null: x is multiplied as it is. Its means are null in evaluation.
  const BatchNormSpec* before = nullptr;
  NormPointers of_before;
  // The normalisation behind, whose means and running statistics forward writes in training; null in evaluation.
  const BatchNormSpec* after = nullptr;
  NormPointers of_after;
  float* partial_sums = nullptr;  // scratch

  // The others only backward.
  // The gradient of the result of the normalisation behind, before its activation if that is none, after it otherwise.
  const void* g = nullptr;
  Activation activation = Activation::none;
  // Receives the input's gradient; with a normalisation in front that of its result before its activation.
  void* dx = nullptr;
  bool add = false;  // dx is added to what is there; not with a normalisation in front
  float* weights_gradient = nullptr;
  float* before_weight_gradient = nullptr;
  float* before_bias_gradient = nullptr;
  const float* after_weight_gradient = nullptr;
  const float* after_bias_gradient = nullptr;
};
// Floats of scratch.
std::int64_t conv1x1_forward_sums(const ConvSpec& spec);
std::int64_t conv1x1_backward_sums(const ConvSpec& spec);
void conv1x1(cudaStream_t stream, const ConvSpec& spec, const Conv1x1Arguments& arguments);
void conv1x1_backward(cudaStream_t stream, const ConvSpec& spec, const Conv1x1Arguments& arguments);

}  // namespace ddp::cuda
