// What a core can compute, for measuring it; compiled once for each instruction set (isa/kernels.inc).
//
//   const float sum = lanes::peak_kernels().multiply_adds(1000, 0.5F);
#pragma once

#include <cstdint>

namespace ddp::lanes {

struct PeakKernels {
  // Multiplies and adds in registers without memory: `rounds` times `round_multiply_adds` of them. Returns a sum that depends on
  // all.
  float (*multiply_adds)(std::int64_t rounds, float factor);
  int round_multiply_adds;
};

const PeakKernels& peak_kernels();

}  // namespace ddp::lanes
