// Kernels of PReLU, compiled once for each instruction set (isa/kernels.inc).
#pragma once

#include <cstdint>

namespace ddp::lanes {

struct PreluKernels {
  // `rows` rows of `width` values; a weight for each column.
  void (*forward)(std::int64_t rows, std::int64_t width, const float* x, const float* weights, float* y);
  // Adds the gradients of the weights, in double, to `sums`; dx may be dy.
  void (*backward)(std::int64_t rows, std::int64_t width, const float* x, const float* weights, const float* dy,
                   float* dx, double* sums);
  // The same for `count` values with the same weight.
  void (*forward_one)(std::int64_t count, const float* x, float weight, float* y);
  double (*backward_one)(std::int64_t count, const float* x, float weight, const float* dy, float* dx);
};

const PreluKernels& prelu_kernels();

}  // namespace ddp::lanes
