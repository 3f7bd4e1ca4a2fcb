// Kernels of GELU, compiled once for each instruction set like those of lanes_kernels.h.
#pragma once

#include <cstdint>

namespace ddp::lanes {

struct GeluKernels {
  // y = x Phi(x)
  void (*forward)(std::int64_t count, const float* x, float* y);
  // dx = dy (Phi(x) + x Phi'(x)); dx may be dy.
  void (*backward)(std::int64_t count, const float* x, const float* dy, float* dx);
};

}  // namespace ddp::lanes
