// Operators that compute each value by itself, or only move values; plain or nhwc, the same on both sides; and their kernels, as
// functions that enqueue them on a stream.
//
//   activation_forward(stream, Element::bf16, Activation::relu, x, y, count);
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

// All pointers are multiples of 16 bytes.

void activation_forward(cudaStream_t stream, Element element, Activation activation, const void* x, void* y,
                        std::int64_t count);
// dx = the gradient before the activation, from its output y (not read without an activation); dx2 = the same, unless
// null.
void activation_backward(cudaStream_t stream, Element element, Activation activation, const void* y, const void* dy,
                         void* dx, void* dx2, std::int64_t count);
// y = activation(a + b); y may alias a or b.
void add_activations(cudaStream_t stream, Element element, Activation activation, const void* a, const void* b, void* y,
                     std::int64_t count);
// Converts to fp32 or another element type.
void convert(cudaStream_t stream, Element from, const void* source, Element to, void* target, std::int64_t count);
// Transposes samples from [rows][columns] to [columns][rows]: from nhwc (rows = positions, columns = channels) to
// plain, or back.
void transpose_samples(cudaStream_t stream, Element element, const void* from, void* to, std::int64_t samples,
                       std::int64_t rows, std::int64_t columns);

// Forward from x to y and backward from dy to dx; samples from `active` on are copied unchanged.

void dropout(cudaStream_t stream, Element element, const DropoutSpec& spec, Layout layout, std::int64_t active,
             const std::uint64_t* keys, const void* from, void* to);

// Epilogues of a convolution or a matrix product of `rows` x `channels` values.

// y = activation(y + bias) in place; a null bias is 0, here and below.
void add_bias(cudaStream_t stream, Element element, bool relu, void* y, const float* bias, std::int64_t rows,
              std::int64_t channels);
// y = the average over 2x2 of relu(convolved + bias), both nhwc.
void add_bias_relu_pool(cudaStream_t stream, Element element, const void* convolved, const float* bias, void* y,
                        std::int64_t samples, const Shape& convolved_shape);

// Backward, including the bias gradient: dpre is the gradient before bias and activation.
struct BiasBackward {
  Element element = Element::fp32;
  std::int64_t rows = 0;  // samples x positions before pooling
  std::int64_t channels = 0;
  const void* dy = nullptr;
  const void* y = nullptr;          // after ReLU; null: there is no ReLU, or there is pooling
  const void* convolved = nullptr;  // with pooling: the convolution's result before the bias
  std::int64_t height = 0;          // with pooling: of that result
  std::int64_t width = 0;
  const float* bias = nullptr;     // with pooling
  void* dpre = nullptr;            // written if there is a ReLU
  float* bias_gradient = nullptr;  // null: there is no bias
  float* partial_sums = nullptr;   // scratch of bias_partial_sums(rows, channels)
};
std::int64_t bias_partial_sums(std::int64_t rows, std::int64_t channels);
void bias_backward(cudaStream_t stream, const BiasBackward& arguments);

// The operators that are not declared in backend/ops.

std::unique_ptr<Op> make_cuda_activation(const CudaContext& context, const ActivationSpec& spec);
std::unique_ptr<Op> make_cuda_add(const CudaContext& context, const AddSpec& spec);
// From plain to nhwc or back.
std::unique_ptr<Op> make_cuda_reorder(const CudaContext& context, const ReorderSpec& spec, Layout from, Layout to);
// In nhwc.
std::unique_ptr<Op> make_cuda_channels_last(const CudaContext& context, const ChannelsLastSpec& spec);

}  // namespace ddp::cuda
