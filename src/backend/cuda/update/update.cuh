// Shared by the kernels of optimizers (update.cu, muon.cu): the sums of chunks, and the numbers of a step.
//
//   const StepNumbers numbers = numbers_of(arguments);
//   put_sums(tree, arguments, chunk, squared(gradient), squared(weight));
#pragma once

#include "backend/cuda/code/block_sum.cuh"
#include "backend/cuda/code/launch.cuh"
#include "backend/update/flat_update.h"
#include "optim/rules/numbers.h"

namespace ddp::cuda {

// Called by all threads of a block.
__device__ inline double sum_over(double (&tree)[kThreads], const UpdateArguments& a, std::int64_t first,
                                  std::int64_t count, int which) {
  double sum = 0;
  for (std::int64_t c = first + threadIdx.x; c < first + count; c += kThreads) sum += __ldcg(a.sums + 2 * c + which);
  return sum_of_block(tree, sum);
}

// Leaves the sums over the block of two values of its threads as those of chunk c. Called by all threads of the block.
__device__ inline void put_sums(double (&tree)[kThreads], const UpdateArguments& a, std::int64_t c, double first,
                                double second) {
  first = sum_of_block(tree, first);
  second = sum_of_block(tree, second);
  if (threadIdx.x != 0) return;
  a.sums[2 * c] = first;
  a.sums[2 * c + 1] = second;
}

__device__ inline double squared(float value) { return static_cast<double>(value) * static_cast<double>(value); }

// Whether the numbers of a step depend on all chunks or take powers, so that they are computed once and not by each thread.
__host__ __device__ inline bool keeps_numbers(const UpdateSettings& settings) {
  return settings.clip_norm > 0 || settings.has_moments();
}

__device__ inline StepNumbers numbers_of(const UpdateArguments& a) {
  return keeps_numbers(a.settings) ? *a.numbers : step_numbers(a.settings, *a.control, 0);
}

inline unsigned blocks_of(std::int64_t count) {
  return static_cast<unsigned>(static_cast<std::size_t>(count) < kMostBlocks ? static_cast<std::size_t>(count)
                                                                             : kMostBlocks);
}

}  // namespace ddp::cuda
