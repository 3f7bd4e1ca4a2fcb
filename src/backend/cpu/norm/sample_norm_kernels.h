// Kernels of normalisation within samples, compiled once for each instruction set (isa/kernels.inc).
#pragma once

#include <cstdint>

namespace ddp::lanes {

// `rows` rows of `width` contiguous values, `stride` apart. Coefficients differ by row, by column, or not at all, as the
// kernel says; each pointer is to as many of them.
struct SampleNormTask {
  std::int64_t rows;
  std::int64_t width;
  std::int64_t stride;
  const float* x;
  float* y;
  const float* dy;
  float* dx;
  const float* mean;
  const float* inverse;  // 1 / sqrt(variance + epsilon)
  const float* weight;
  const float* bias;
  // Means over the set of dy * weight, and of this times (x - mean) * inverse^2.
  const float* offset;
  const float* slope;
};

// Sums in double, which are added to what is there.
struct SampleNormSums {
  double* first;
  double* second;
};

struct SampleNormKernels {
  // By the mean's index: the sums of x and of x^2.
  void (*moments)(const SampleNormTask& task, const SampleNormSums& sets);
  void (*forward)(const SampleNormTask& task);
  // By the mean's index: the sums of dy * weight and of dy * weight * (x - mean); by the weight's: those of dy and of
  // dy * (x - mean) * inverse.
  void (*products)(const SampleNormTask& task, const SampleNormSums& sets, const SampleNormSums& parameters);
  void (*backward)(const SampleNormTask& task);
};

// What mean and inverse, and then weight and bias, differ by.
struct SampleNormTable {
  SampleNormKernels column_row, row_column, one_row, one_column, column_one;
};

const SampleNormTable& sample_norm_kernels();

}  // namespace ddp::lanes
