// The sum over a block of threads, in a fixed order.
//
//   __shared__ double tree[kThreads];
//   sum = sum_of_block(tree, sum);
#pragma once

#include "backend/cuda/launch.cuh"

namespace ddp::cuda {

// Binary tree over the block of kThreadsOfBlock threads; called by all of its threads, all of which receive the sum.
template <unsigned kThreadsOfBlock>
__device__ inline double sum_of_block(double (&tree)[kThreadsOfBlock], double value) {
  tree[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = kThreadsOfBlock / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) tree[threadIdx.x] += tree[threadIdx.x + half];
    __syncthreads();
  }
  const double sum = tree[0];
  __syncthreads();
  return sum;
}

}  // namespace ddp::cuda
