// Kernels of softmax, compiled once for each instruction set (isa/kernels.inc).
#pragma once

#include <cstdint>

namespace ddp::lanes {

// Values of `channels` channels at `width` positions: those of a position lie `stride` apart, those of a channel side by side;
// or with a stride of 1 those of one position.
struct SoftmaxTask {
  std::int64_t channels;
  std::int64_t width;
  std::int64_t stride;
};

struct SoftmaxKernels {
  // y may be x; dx may be dy.
  void (*forward)(const SoftmaxTask& task, const float* x, float* y);
  void (*backward)(const SoftmaxTask& task, const float* y, const float* dy, float* dx);
};

struct SoftmaxTable {
  // At most this many positions are computed together; their sums fit into the first-level cache.
  static constexpr std::int64_t kMostPositions = 256;

  SoftmaxKernels beside;  // positions side by side
  SoftmaxKernels single;  // a stride of 1
};

const SoftmaxTable& softmax_kernels();

}  // namespace ddp::lanes
