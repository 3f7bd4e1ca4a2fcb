// The sum over a block of threads, in a fixed order.
//
//   __shared__ double tree[kThreads];
//   sum = sum_of_block(tree, sum);
#pragma once

#include "backend/cuda/code/launch.cuh"

namespace ddp::cuda {

// Binary trees over the block of kThreadsOfBlock threads, one for each of kValues values; called by all of its threads, all of
// which receive the sums.
template <unsigned kValues, unsigned kThreadsOfBlock>
__device__ inline void sums_of_block(double (&trees)[kValues][kThreadsOfBlock], double (&values)[kValues]) {
  static_assert(kThreadsOfBlock >= 64);
  for (unsigned v = 0; v < kValues; ++v) trees[v][threadIdx.x] = values[v];
  __syncthreads();
#pragma unroll 1
  for (unsigned half = kThreadsOfBlock / 2; half >= 32; half /= 2) {
    if (threadIdx.x < half) {
      for (unsigned v = 0; v < kValues; ++v) trees[v][threadIdx.x] += trees[v][threadIdx.x + half];
    }
    __syncthreads();
  }
  // The rest is within each warp, all of which compute the same.
  for (unsigned v = 0; v < kValues; ++v) values[v] = trees[v][threadIdx.x % 32];
#pragma unroll 1
  for (unsigned half = 16; half > 0; half /= 2) {
    for (unsigned v = 0; v < kValues; ++v) values[v] += __shfl_xor_sync(0xFFFFFFFFU, values[v], half);
  }
  __syncthreads();
}

template <unsigned kThreadsOfBlock>
__device__ inline double sum_of_block(double (&tree)[kThreadsOfBlock], double value) {
  double values[1] = {value};
  sums_of_block(reinterpret_cast<double(&)[1][kThreadsOfBlock]>(tree), values);
  return values[0];
}

}  // namespace ddp::cuda
