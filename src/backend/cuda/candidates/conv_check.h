// Checks a kernel's result of a convolution or its gradient against the definition: libraries contain kernels that are
// wrong for some shapes on some GPUs.
//
//   ConvCheck check(device, context, problem, {.x = x, .w = w, .y = result});
//   plan.execute(...);                                             // writes `result`, which was NaN before
//   const std::string difference = check.difference(result, elements);   // empty: correct
//
// Some hundred elements of the result are compared with sums in fp64, half of them at the borders, where padding
// matters; all elements must be finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/vendor/context.h"
#include "backend/cuda/vendor/conv_problem.h"

namespace ddp::cuda {

// The reference of a convolution at some elements of the result.

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

class ConvCheck {
 public:
  // Computes the reference from the two tensors that the problem reads.
  ConvCheck(const DeviceContext& device, const CudaContext& context, const ConvProblem& problem,
            const ConvPointers& tensors);

  // Describes the error in `result`, of `count` elements, in which the correct one was added up `times` times; empty if
  // there is none. Waits for the device.
  std::string difference(const void* result, std::size_t count, int times = 1) const;

 private:
  double allowed(double value) const;

  const DeviceContext& device_;
  const CudaContext& context_;
  ConvProblem problem_;
  std::vector<ConvSample> samples_;
  double size_ = 0;  // magnitude of the sums in which rounding occurs
  Memory values_;    // at the positions of the samples
  Memory comparison_;
};

}  // namespace ddp::cuda
