// Our own kernels, as functions that enqueue them on a stream. Activations are untyped pointers to elements of the
// given kind; everything else is fp32 or has its declared type. All are deterministic: the order of additions depends
// only on shapes.
//
//   activation_forward(stream, Element::bf16, Activation::relu, x, y, count);
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cuda/conv_problem.h"
#include "backend/cuda/element.h"
#include "backend/flat_math.h"
#include "backend/flat_update.h"
#include "backend/loss.h"
#include "backend/op.h"
#include "backend/weight_packing.h"

namespace ddp::cuda {

// Kernels that decompose an index use 32 bits; operators reject larger activations.
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 31U;

// --- input.cu: converts images to the first activation.

inline constexpr std::size_t kMostImageChannels = 8;
void load_input(cudaStream_t stream, Element element, const InputSpec& spec, const InputArguments& arguments);

// --- elementwise.cu

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

// --- weights.cu: converts weights from PyTorch's [K][C][RS] to [K][RS][C] or to fragments, and gradients back.

void pack_weights(cudaStream_t stream, const float* weights, Element element, void* packed, const PackedShape& shape);
void unpack_weights(cudaStream_t stream, Element element, const void* packed, float* weights, const PackedShape& shape);
// The same for any number of them, with kPackedAtOnce by one kernel.
inline constexpr std::size_t kPackedAtOnce = 64;
void pack_weights(cudaStream_t stream, Element element, std::span<const WeightPacking> all);
void unpack_weights(cudaStream_t stream, Element element, std::span<const WeightPacking> all);

// --- pooling.cu

// Bytes for the positions of the maxima, saved by forward for backward; 0 for averages.
std::size_t pool_saved_bytes(const PoolSpec& spec);
void pool_forward(cudaStream_t stream, Element element, const PoolSpec& spec, Layout layout, const void* x, void* y,
                  std::byte* saved);
void pool_backward(cudaStream_t stream, Element element, const PoolSpec& spec, Layout layout, const void* dy, void* dx,
                   std::byte* saved);

// --- batch_norm.cu, batch_norm_backward.cu: over the first `samples` of the batch, at least one.

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

// --- lrn.cu

void lrn_forward(cudaStream_t stream, Element element, const LrnSpec& spec, Layout layout, const void* x, void* y);
// `products`: scratch with one float per element.
void lrn_backward(cudaStream_t stream, Element element, const LrnSpec& spec, Layout layout, const void* x,
                  const void* dy, void* dx, float* products);

// --- dropout.cu: forward from x to y and backward from dy to dx; samples from `active` on are copied unchanged.

void dropout(cudaStream_t stream, Element element, const DropoutSpec& spec, Layout layout, std::int64_t active,
             const std::uint64_t* keys, const void* from, void* to);

// --- conv_check.cu: the reference of a convolution at some elements of the result; see conv_check.h.

inline constexpr unsigned kConvSamples = 256;
struct ConvSample {
  double value;    // the sum of products, in fp64
  double squares;  // the sum of their squares
};
// The number of products in the sum of a result element, including those on padding.
std::int64_t conv_terms(const ConvProblem& problem);
// Scratch of conv_reference().
std::size_t conv_partial_bytes(const ConvProblem& problem);
// Writes kConvSamples samples of the result computed from the two tensors that the problem reads.
void conv_reference(cudaStream_t stream, const ConvProblem& problem, const ConvPointers& tensors, void* partial,
                    ConvSample* samples);
// Reads the corresponding elements of `result`.
void conv_results(cudaStream_t stream, const ConvProblem& problem, const void* result, float* values);

// --- depthwise.cu, depthwise_weights.cu: depthwise convolutions with windows of 3x3 and 5x5, strides 1 and 2, any
// padding, with vectors of 16 bytes of channels; sums in fp32.

bool depthwise_supports(Element element, const ConvSpec& spec);
std::size_t depthwise_workspace_bytes(const ConvProblem& problem);
void depthwise(cudaStream_t stream, const ConvProblem& problem, const ConvPointers& tensors, void* workspace);
// Called by depthwise() for the weight gradient.
void depthwise_weights(cudaStream_t stream, const ConvProblem& problem, const ConvPointers& tensors, float* partial);

// --- norm_depthwise.cu, norm_depthwise_backward.cu: depthwise convolutions that normalise what they read, over the first
// `samples` of the batch, at least one; shapes as above.

struct NormDepthwiseSpec {
  BatchNormSpec before;
  ConvSpec conv;
  BatchNormSpec after;
};
struct NormPointers {
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* means = nullptr;       // as in BatchNormForward; null: in evaluation
  float* statistics = nullptr;  // likewise
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
// --- bias.cu: epilogues of a convolution or a matrix product of `rows` x `channels` values.

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

// --- loss.cu

void softmax_cross_entropy(cudaStream_t stream, Element element, const LossSpec& spec, const LossArguments& arguments);

// --- flat.cu

void add(cudaStream_t stream, float* sum, const float* addend, std::size_t count);
// These two do nothing if there is `skip` and *skip is not 0.
void copy(cudaStream_t stream, float* to, const float* from, std::size_t count, const double* skip);
void pull(cudaStream_t stream, float* slow, float* fast, std::size_t count, float rest, const double* skip);
void copy_row(cudaStream_t stream, std::span<const TableColumn> columns, TableCursor* cursor);
void find_broken(cudaStream_t stream, std::span<const double> sums, double* broken);
// kSquareSums sums of squares, each over an equal part of the values, in a fixed order, and the check of FlatMath.
void square_sums(cudaStream_t stream, const float* values, std::size_t count, double* sums, const BrokenCheck& check);
// Pseudo-random values between -0.5 and 0.5 that depend only on index and seed, to time and to check kernels.
void fill_random(cudaStream_t stream, Element element, void* data, std::size_t count, std::uint32_t seed);
// result[0] = the largest |a - b|, infinite if either is NaN, result[1] = the largest |a|.
void compare(cudaStream_t stream, Element element, const void* a, const void* b, std::size_t count, float* result);
// counts[0] = the number of elements with |a - b| > limit, counts[1] = of those where it is not finite.
void count_apart(cudaStream_t stream, Element element, const void* a, const void* b, std::size_t count, float limit,
                 unsigned* counts);

// --- update.cu

void update(cudaStream_t stream, const UpdateArguments& arguments);

// --- muon.cu: what surrounds the products of muon.cpp. They do nothing where the update is skipped.

// Matrices whose products are computed at once. Each is `small` x `large`, with its smaller side first and zeros behind its
// rows and columns.
inline constexpr std::int64_t kMatricesAtOnce = 32;
struct MatrixBatch {
  std::int64_t small = 0;
  std::int64_t large = 0;
  std::int64_t count = 0;
  UpdateMatrix matrices[kMatricesAtOnce] = {};
};
// The momentum of all matrices, and their norms.
void muon_momentum(cudaStream_t stream, const UpdateArguments& arguments);
// x = the directions of a batch, of norm 1, one matrix behind the other.
void muon_directions(cudaStream_t stream, Element element, const UpdateArguments& arguments, const MatrixBatch& batch,
                     void* x);
// The new weights of a batch, where x are its steps.
void muon_weights(cudaStream_t stream, Element element, const UpdateArguments& arguments, const MatrixBatch& batch,
                  const void* x);

}  // namespace ddp::cuda
