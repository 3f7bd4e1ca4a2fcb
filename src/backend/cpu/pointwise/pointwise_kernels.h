// Kernels of pointwise functions and of products, compiled once for each instruction set (isa/kernels.inc).
#pragma once

#include <cstdint>

namespace ddp::lanes {

// As in PointwiseFunction.
inline constexpr int kPointwiseFunctions = 6;

struct PointwiseKernels {
  // y = f(x)
  void (*forward)(std::int64_t count, float alpha, const float* x, float* y);
  // dx = dy f'(x); dx may be dy.
  void (*backward)(std::int64_t count, float alpha, const float* x, const float* dy, float* dx);
};

// `inner` factors for `positions` x `inner` values.
struct ProductKernels {
  void (*forward)(std::int64_t positions, std::int64_t inner, const float* x, const float* factors, float* y);
  // dx = dy factors, and the sums of dy x over the positions.
  void (*backward)(std::int64_t positions, std::int64_t inner, const float* x, const float* factors, const float* dy,
                   float* dx, float* dfactors);
};

struct PointwiseTable {
  PointwiseKernels functions[kPointwiseFunctions];
  ProductKernels product;
};

const PointwiseTable& pointwise_kernels();

}  // namespace ddp::lanes
