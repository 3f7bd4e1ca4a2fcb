// The kernels of our own, as functions that enqueue them on a stream. Activations are untyped pointers to elements of
// the given kind, everything else is fp32 or what its type says. Each is deterministic: sums are taken in an order that
// depends on shapes alone.
//
//   relu_forward(stream, Element::bf16, x, y, count);
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/cuda/element.h"
#include "backend/flat_update.h"
#include "backend/loss.h"
#include "backend/op.h"

namespace ddp::cuda {

// Kernels that take an index apart count in 32 bits; operators refuse larger activations.
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 31U;

// --- input.cu: bytes of images to the first activation.

inline constexpr std::size_t kMostImageChannels = 8;
void load_input(cudaStream_t stream, Element element, const InputSpec& spec, const InputArguments& arguments);

// --- elementwise.cu

void relu_forward(cudaStream_t stream, Element element, const void* x, void* y, std::int64_t count);
void relu_backward(cudaStream_t stream, Element element, const void* y, const void* dy, void* dx, std::int64_t count);
// The same values as fp32 or in another element.
void convert(cudaStream_t stream, Element from, const void* source, Element to, void* target, std::int64_t count);
// Samples of [rows][columns] to [columns][rows]: from nhwc (rows = positions, columns = channels) to plain, or back.
void transpose_samples(cudaStream_t stream, Element element, const void* from, void* to, std::int64_t samples,
                       std::int64_t rows, std::int64_t columns);

// --- weights.cu: a convolution's weights [K][C][RS], as PyTorch has them, to [K][RS][C] and gradients back.

void pack_weights(cudaStream_t stream, const float* weights, Element element, void* packed, std::int64_t outputs,
                  std::int64_t channels, std::int64_t taps);
void unpack_weights(cudaStream_t stream, Element element, const void* packed, float* weights, std::int64_t outputs,
                    std::int64_t channels, std::int64_t taps);

// --- pooling.cu

void pool_forward(cudaStream_t stream, Element element, const PoolSpec& spec, Layout layout, const void* x, void* y);
void pool_backward(cudaStream_t stream, Element element, const PoolSpec& spec, Layout layout, const void* x,
                   const void* y, const void* dy, void* dx);

// --- bias.cu: what follows a convolution or a matrix product of `rows` x `channels` values.

// y = activation(y + bias) in place.
void add_bias(cudaStream_t stream, Element element, bool relu, void* y, const float* bias, std::int64_t rows,
              std::int64_t channels);
// y = the average over 2x2 of relu(convolved + bias), both nhwc.
void add_bias_relu_pool(cudaStream_t stream, Element element, const void* convolved, const float* bias, void* y,
                        std::int64_t samples, const Shape& convolved_shape);

// The way back, and the bias's gradient with it: dpre is the gradient before bias and activation.
struct BiasBackward {
  Element element = Element::fp32;
  std::int64_t rows = 0;  // samples x positions before pooling
  std::int64_t channels = 0;
  const void* dy = nullptr;
  const void* y = nullptr;          // after ReLU; null: there is no ReLU, or there is pooling
  const void* convolved = nullptr;  // with pooling: the convolution's result before the bias
  std::int64_t height = 0;          // with pooling: of that result
  std::int64_t width = 0;
  const float* bias = nullptr;  // with pooling
  void* dpre = nullptr;         // written where there is a ReLU
  float* bias_gradient = nullptr;
  float* partial_sums = nullptr;  // room for bias_partial_sums(rows, channels)
};
std::int64_t bias_partial_sums(std::int64_t rows, std::int64_t channels);
void bias_backward(cudaStream_t stream, const BiasBackward& arguments);

// --- loss.cu

void softmax_cross_entropy(cudaStream_t stream, Element element, const LossSpec& spec, const LossArguments& arguments);

// --- flat.cu

void add(cudaStream_t stream, float* sum, const float* addend, std::size_t count);
void find_broken(cudaStream_t stream, const float* values, std::size_t count, const double* sums, std::size_t sum_count,
                 double* broken);
// Values between -0.5 and 0.5 that depend on the index alone, to time kernels on.
void fill_pattern(cudaStream_t stream, Element element, void* data, std::size_t count);
// result[0] = the largest |a - b|, infinite where one of the two is no number, result[1] = the largest |a|.
void compare(cudaStream_t stream, Element element, const void* a, const void* b, std::size_t count, float* result);

// --- update.cu

void update(cudaStream_t stream, const UpdateArguments& arguments);

}  // namespace ddp::cuda
