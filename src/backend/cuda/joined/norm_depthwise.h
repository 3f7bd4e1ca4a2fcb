// Kernels of depthwise convolutions that normalise what they read, over the first `samples` of the batch, at least one; shapes as
// those of conv/conv.h.
//
//   norm_depthwise(stream, element, spec, {.samples = samples, .x = x, .weights = w, .y = y});
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/device/element.h"
#include "backend/cuda/norm/norm.h"
#include "backend/op.h"

namespace ddp::cuda {

struct NormDepthwiseSpec {
  BatchNormSpec before;
  ConvSpec conv;
  BatchNormSpec after;
};
struct NormDepthwiseForward {
  std::int64_t samples = 0;
  const void* x = nullptr;
  const float* weights = nullptr;  // as PyTorch has them
  // In training the convolution's result, whose means and running statistics are written; in evaluation normalised.
  void* y = nullptr;
  NormPointers before;
  NormPointers after;
  float* partial_sums = nullptr;  // in training: scratch of norm_depthwise_forward_sums()
};
struct NormDepthwiseBackward {
  std::int64_t samples = 0;
  const void* x = nullptr;
  const void* convolved = nullptr;  // the convolution's result
  const void* dy = nullptr;
  void* dx = nullptr;  // receives the gradient before the activation of the first normalisation
  const float* weights = nullptr;
  float* weights_gradient = nullptr;
  NormPointers before;
  NormPointers after;
  const float* after_weight_gradient = nullptr;
  const float* after_bias_gradient = nullptr;
  float* before_weight_gradient = nullptr;
  float* before_bias_gradient = nullptr;
  float* partial_sums = nullptr;  // scratch of norm_depthwise_backward_sums()
};
// Floats of scratch.
std::int64_t norm_depthwise_forward_sums(const ConvSpec& spec);
std::int64_t norm_depthwise_backward_sums(const ConvSpec& spec);
void norm_depthwise(cudaStream_t stream, Element element, const NormDepthwiseSpec& spec,
                    const NormDepthwiseForward& arguments);
// The gradients of the convolution's weights and of the first normalisation's parameters, and that before its activation.
void norm_depthwise_backward(cudaStream_t stream, Element element, const NormDepthwiseSpec& spec,
                             const NormDepthwiseBackward& arguments);

}  // namespace ddp::cuda
