// Kernels of batch normalisation, compiled once for each instruction set (isa/kernels.inc). Sums are
// double, in which squares of floats are exact, so that a variance is not lost beside a large mean.
//
// A layout is either rows that belong to one channel each (plain, lanes16) or rows of all channels (nhwc).
#pragma once

#include <cstdint>

namespace ddp::lanes {

// The activation after the normalisation, as an index into a table.
inline constexpr int kNormActivations = 3;  // none, ReLU, ReLU6

// A row of one channel, of floats or bf16 numbers: y = activation(scale * (x - mean) + shift + x2).
template <class Value>
struct NormRow {
  const Value* x;
  const Value* x2;  // or null
  Value* y;
  std::int64_t count;
  float mean, scale, shift;
};
// Its gradient, from the masked dy: dx2 = dy, dx = scale * ((dy - offset) - slope * (x - mean)). The mask follows from y, or
// where nothing was added from y = y_scale * (x - mean) + y_shift, so that y need not be read.
template <class Value>
struct NormRowGradient {
  const Value* x;
  const Value* y;  // null without an activation, and if the mask follows from x
  const Value* dy;
  Value* dx;
  Value* dx2;  // or null
  std::int64_t count;
  float mean, scale, offset, slope;
  float y_scale, y_shift;
};
// The same for `rows` rows of `channels` values, with separate factors per channel.
struct NormChannels {
  const float* x;
  const float* x2;
  float* y;
  std::int64_t rows, channels;
  const float *mean, *scale, *shift;
};
struct NormChannelsGradient {
  const float* x;
  const float* y;
  const float* dy;
  float* dx;
  float* dx2;
  std::int64_t rows, channels;
  const float *mean, *scale, *offset, *slope;
};

inline constexpr int kNormLanes = 16;
// Sums over some of a row's pieces of so many values, one after the other, have the bits of the sum over all; a piece stays
// in the first-level cache.
inline constexpr int kSummedPiece = 2048;

template <class Value>
struct NormRowKernels {
  // sums[i] += x and sums[16 + i] += x^2 over the elements whose index in the row is i modulo 16.
  void (*moments)(const Value* x, std::int64_t count, double* sums);
  void (*forward[kNormActivations])(const NormRow<Value>& row);
  // With masks from y (0) and from x (1): the same sums of dy after the activation's mask, and of its product with x - mean;
  // and the gradient.
  void (*products[2][kNormActivations])(const NormRowGradient<Value>& row, double* sums);
  void (*backward[2][kNormActivations])(const NormRowGradient<Value>& row);
};

struct NormKernels {
  NormRowKernels<float> row;
  NormRowKernels<std::uint16_t> row_bf16;
  // sums[c] = the sums of x, sums[channels + c] = those of x^2.
  void (*channel_moments)(const float* x, std::int64_t rows, std::int64_t channels, double* sums);
  void (*channel_products[kNormActivations])(const NormChannelsGradient& part, double* sums);
  void (*channel_forward[kNormActivations])(const NormChannels& part);
  void (*channel_backward[kNormActivations])(const NormChannelsGradient& part);
};

const NormKernels& norm_kernels();

}  // namespace ddp::lanes
