// Normalisations, plain or nhwc, the same on both sides; and their kernels, as functions that enqueue them on a stream.
//
//   std::unique_ptr<Op> op = make_cuda_batch_norm(context, spec, Layout::nhwc);
//
// Activations are untyped pointers to elements of the given kind; everything else is fp32 or has its declared type. The order of
// additions depends only on shapes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "backend/cuda/device/element.h"
#include "backend/cuda/vendor/context.h"
#include "backend/op.h"

namespace ddp::cuda {

// Batch normalisation. Over the first `samples` of the batch, at least one.

struct BatchNormForward {
  std::int64_t samples = 0;
  const void* x = nullptr;
  const void* x2 = nullptr;  // null: no second input
  void* y = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  const float* input_bias = nullptr;  // null: none
  float* statistics = nullptr;        // running statistics [2][channels]: updated in training, read in evaluation
  float* means = nullptr;             // in training, for backward, [2][channels]: means, 1 / sqrt(variance + epsilon)
  float* partial_sums = nullptr;      // in training: scratch of batch_norm_partial_sums()
  std::uint8_t* mask = nullptr;       // in training, for backward: batch_norm_mask_bytes(); null: none
  bool streams = false;               // y exceeds the GPU's cache
};
struct BatchNormBackward {
  std::int64_t samples = 0;
  const void* x = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;
  void* dx2 = nullptr;  // null: no second input
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* weight_gradient = nullptr;
  float* bias_gradient = nullptr;
  float* input_bias_gradient = nullptr;  // null: none
  const float* means = nullptr;
  const std::uint8_t* mask = nullptr;  // as saved by forward
  float* partial_sums = nullptr;
  bool streams = false;  // dx exceeds the GPU's cache
};
std::int64_t batch_norm_partial_sums(Element element, const BatchNormSpec& spec, Layout layout);
// Whether there are few enough channels that blocks can count themselves.
bool batch_norm_takes(Element element, const BatchNormSpec& spec, Layout layout);
// Bytes for the mask of gradients that pass the activation after a sum, one bit per element; 0 if not needed.
std::int64_t batch_norm_mask_bytes(Element element, const BatchNormSpec& spec, Layout layout);
// The moments of x: `means` and the running statistics.
void batch_norm_moments(cudaStream_t stream, Element element, const BatchNormSpec& spec, Layout layout,
                        const BatchNormForward& arguments);
// `means` of the running statistics, which stay.
void batch_norm_keep(cudaStream_t stream, const BatchNormSpec& spec, const BatchNormForward& arguments);
// y by `means`, or by the running statistics if that is null.
void batch_norm_normalize(cudaStream_t stream, Element element, const BatchNormSpec& spec, Layout layout,
                          const BatchNormForward& arguments);
// The gradients of the parameters, and dx2, which is the gradient before the activation.
void batch_norm_sums(cudaStream_t stream, Element element, const BatchNormSpec& spec, Layout layout,
                     const BatchNormBackward& arguments);
// dx from the gradients of the parameters, and from dx2 instead of dy if there is one. dx may alias it.
void batch_norm_input_gradient(cudaStream_t stream, Element element, const BatchNormSpec& spec, Layout layout,
                               const BatchNormBackward& arguments);

struct NormPointers {
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* means = nullptr;       // as in BatchNormForward; null: in evaluation
  float* statistics = nullptr;  // likewise
};
void lrn_forward(cudaStream_t stream, Element element, const LrnSpec& spec, Layout layout, const void* x, void* y);
// `products`: scratch with one float per element.
void lrn_backward(cudaStream_t stream, Element element, const LrnSpec& spec, Layout layout, const void* x,
                  const void* dy, void* dx, float* products);

// The operators.

std::unique_ptr<Op> make_cuda_batch_norm(const CudaContext& context, const BatchNormSpec& spec, Layout layout);
// Whether a batch normalisation can be a part of an operator that is several (joined/joined.h).
bool norm_joins(const CudaContext& context, const BatchNormSpec& spec);

}  // namespace ddp::cuda
