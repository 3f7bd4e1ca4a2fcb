// Kernels of local response normalisation, compiled once for each instruction set (isa/kernels.inc).
#pragma once

#include <cstdint>

namespace ddp::lanes {

// `count` values of a row and their neighbours in other channels, `step` floats apart, from `first` (<= 0) to `last`
// (>= 0).
struct LrnWindow {
  std::int64_t count;
  std::int64_t step;
  std::int64_t first;
  std::int64_t last;
};

struct LrnKernels {
  // sums = k + share * (the sum of x^2 over the window), y = x * sums^-beta.
  void (*forward)(const LrnWindow& window, const float* x, float share, float k, float beta, float* sums, float* y);
  // dx = dy * sums^-beta and terms = dy * x * sums^(-beta - 1).
  void (*terms)(std::int64_t count, const float* x, const float* sums, const float* dy, float beta, float* dx,
                float* terms);
  // dx -= factor * x * (the sum of the terms over the window).
  void (*backward)(const LrnWindow& window, const float* x, const float* terms, float factor, float* dx);
};

const LrnKernels& lrn_kernels();

}  // namespace ddp::lanes
