// Shared by the kernels of optimizers (update.cu, muon.cu): sums over a block, and the numbers of a step.
//
//   const StepNumbers numbers = numbers_of(arguments);
//   sum = block_sum(tree, sum);
#pragma once

#include "backend/cuda/launch.cuh"
#include "backend/flat_update.h"
#include "optim/rules/numbers.h"

namespace ddp::cuda {

// Binary tree over the block; called by all of its threads, all of which receive the sum.
__device__ inline double block_sum(double* tree, double value) {
  tree[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) tree[threadIdx.x] += tree[threadIdx.x + half];
    __syncthreads();
  }
  const double sum = tree[0];
  __syncthreads();
  return sum;
}

// Called by all threads of a block.
__device__ inline double sum_over(double* tree, const UpdateArguments& a, std::int64_t first, std::int64_t count,
                                  int which) {
  double sum = 0;
  for (std::int64_t c = first + threadIdx.x; c < first + count; c += kThreads) sum += __ldcg(a.sums + 2 * c + which);
  return block_sum(tree, sum);
}

__device__ inline double squared(float value) { return static_cast<double>(value) * static_cast<double>(value); }

// Whether the numbers of a step depend on all chunks or take powers, so that they are computed once and not by each thread.
__host__ __device__ inline bool keeps_numbers(const UpdateSettings& settings) {
  return settings.clip_norm > 0 || settings.rule == UpdateRule::adam || settings.rule == UpdateRule::lamb;
}

__device__ inline StepNumbers numbers_of(const UpdateArguments& a) {
  return keeps_numbers(a.settings) ? *a.numbers : step_numbers(a.settings, *a.control, 0);
}

inline unsigned blocks_of(std::int64_t count) {
  return static_cast<unsigned>(static_cast<std::size_t>(count) < kMostBlocks ? static_cast<std::size_t>(count)
                                                                             : kMostBlocks);
}

}  // namespace ddp::cuda
