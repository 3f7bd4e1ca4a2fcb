// Whether a kernel computes a convolution, or a gradient of it, as the definition says: libraries have kernels that do
// not, for some shapes on some GPUs.
//
//   ConvCheck check(queue, context, problem, {.x = x, .w = w, .y = result});
//   plan.execute(...);                                             // writes `result`, which was NaN before
//   const std::string difference = check.difference(result, elements);   // empty: it is right
//
// Some hundred elements of the result are compared with sums in fp64, half of them at the borders, where padding
// matters; all elements must be finite.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/operators.h"

namespace ddp::cuda {

class ConvCheck {
 public:
  // Computes the reference from the two tensors that the problem reads.
  ConvCheck(DeviceQueue& queue, const CudaContext& context, const ConvProblem& problem, const ConvPointers& tensors);

  // Where `result`, of `count` elements, is wrong, in words; empty where it is right. Waits for the device.
  std::string difference(const void* result, std::size_t count) const;

 private:
  double allowed(double value) const;

  DeviceQueue& queue_;
  const CudaContext& context_;
  ConvProblem problem_;
  std::vector<ConvSample> samples_;
  double size_ = 0;  // of the sums that rounding happens in
  Memory values_;    // at the samples' places
  Memory comparison_;
};

}  // namespace ddp::cuda
