// Kernels of depthwise convolutions in lanes16, which process each channel as a plane, compiled once for each instruction set.
//
//   lanes::plane_kernels().forward(shape, x, w, bias, y);
#pragma once

#include <cstdint>

#include "backend/cpu/conv/tiles/conv_kernels.h"

namespace ddp::lanes {

inline constexpr int kPlaneTaps = 9;

// Convolution of one channel's plane without a border: y = conv(x, w) + bias.
//   w       [kernel_h][kernel_w]
using PlaneForward = void (*)(const ConvShape& shape, const float* x, const float* w, float bias, float* y);
using PlaneForwardBf16 = void (*)(const ConvShape& shape, const std::uint16_t* x, const float* w, float bias,
                                  std::uint16_t* y);
// sums[tap][16] += x * dy over the positions of a plane.
struct PlaneGradient {
  ConvShape shape;
  const float* x;
  const float* dy;
  float* sums;
};
using PlaneWeights = void (*)(const PlaneGradient& task);
// dw[tap] = the total of sums[tap][16].
using PlaneTotals = void (*)(const float* sums, int taps, float* dw);

struct PlaneKernels {
  PlaneForward forward;
  PlaneForwardBf16 forward_bf16;
  PlaneWeights weights;
  PlaneTotals totals;
  ConvWeights<std::uint16_t> pairs;  // for one channel; its tile has as many taps as a 3x3 window
};

const PlaneKernels& plane_kernels();

}  // namespace ddp::lanes
