// 1x1 convolutions to few channels behind a batch normalisation: bf16 on tensor cores. Forward normalises what it reads, so that the
// normalisation's result is not stored. Backward computes it again, and from it the weights' gradient; it also takes the
// normalisation's sums while writing the gradient before its activation: the wide tensors are read and written once.
//
//   if (project_takes(Element::bf16, spec)) project(stream, spec, {.samples = samples, .x = x, .weights = w, .y = y});
//
// See Note [Tiles of rows] of expand.h. Forward a block computes all channels of the result, 64 of the input at a time; backward
// it takes 64 channels of the input. The result's channels are padded to multiples of 16 in shared memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/device/element.h"
#include "backend/cuda/joined/joined.h"
#include "backend/cuda/norm/norm.h"
#include "backend/op.h"

namespace ddp::cuda {

bool project_takes(Element element, const ConvSpec& spec);

struct ProjectForward {
  std::int64_t samples = 0;
  const void* x = nullptr;         // of the normalisation; in evaluation its result
  const float* weights = nullptr;  // [outputs][channels]
  void* y = nullptr;
  // The normalisation; null in evaluation.
  const BatchNormSpec* norm = nullptr;
  NormPointers of_norm;
};
struct ProjectBackward {
  std::int64_t samples = 0;
  const void* x = nullptr;  // of the normalisation
  const void* dy = nullptr;
  void* g = nullptr;  // receives the gradient of the normalisation's result before its activation
  const float* weights = nullptr;
  float* weights_gradient = nullptr;
  const BatchNormSpec* norm = nullptr;
  NormPointers of_norm;
  float* norm_weight_gradient = nullptr;
  float* norm_bias_gradient = nullptr;
  float* partial_sums = nullptr;
};
// Floats of scratch.
std::int64_t project_backward_sums(const ConvSpec& spec);
void project(cudaStream_t stream, const ConvSpec& spec, const ProjectForward& arguments);
void project_backward(cudaStream_t stream, const ConvSpec& spec, const ProjectBackward& arguments);

}  // namespace ddp::cuda
