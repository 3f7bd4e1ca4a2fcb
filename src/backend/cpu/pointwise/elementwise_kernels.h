// Kernels of activations and sums, compiled once for each instruction set (isa/kernels.inc).
#pragma once

#include <cstdint>

namespace ddp::lanes {

// The index into a table: none, ReLU, ReLU6, sigmoid, tanh, as in Activation.
inline constexpr int kActivations = 5;

// Kernels for floats or bf16 numbers, which are computed in fp32.
template <class Value>
struct ActivationKernels {
  // y = activation(x + x2), or activation(x) if x2 is null; y may be x.
  void (*forward[kActivations])(std::int64_t count, const Value* x, const Value* x2, Value* y);
  // Writes the gradient before the activation, from its output y, to dx, and to dx2 unless null; dx may be dy. Without
  // an activation y is not read.
  void (*backward[kActivations])(std::int64_t count, const Value* y, const Value* dy, Value* dx, Value* dx2);
};

struct ElementwiseKernels {
  ActivationKernels<float> fp32;
  ActivationKernels<std::uint16_t> bf16;
  // To the bits of the nearest bf16, ties to even, with NaN staying NaN; and back.
  void (*to_bf16)(std::int64_t count, const float* from, std::uint16_t* to);
  void (*from_bf16)(std::int64_t count, const std::uint16_t* from, float* to);
  // The same for fp16; numbers from 65520 on become infinite.
  void (*to_fp16)(std::int64_t count, const float* from, std::uint16_t* to);
  void (*from_fp16)(std::int64_t count, const std::uint16_t* from, float* to);
  // Pairs of bf16 numbers, `lower` in the lower half of each float; a null `upper` is zero.
  void (*pair_bf16)(std::int64_t count, const std::uint16_t* lower, const std::uint16_t* upper, float* to);
};

const ElementwiseKernels& elementwise_kernels();

}  // namespace ddp::lanes
