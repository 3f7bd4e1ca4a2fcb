// Kernels of GELU, compiled once for each instruction set (isa/kernels.inc).
#pragma once

#include <cstdint>

namespace ddp::lanes {

struct GeluKernels {
  // y = x Phi(x)
  void (*forward)(std::int64_t count, const float* x, float* y);
  // dx = dy (Phi(x) + x Phi'(x)); dx may be dy.
  void (*backward)(std::int64_t count, const float* x, const float* dy, float* dx);
};

struct GeluTable {
  GeluKernels forms[2];  // by GeluForm
};

const GeluTable& gelu_kernels();

}  // namespace ddp::lanes
