// Work that the last of several blocks does when the others have finished, in place of a second kernel: sums over what all
// of them have left in memory. Which block is the last changes from run to run, but what it computes does not.
//
//   partial[blockIdx.x] = sum;
//   if (!is_last_block(tickets, gridDim.x)) return;
//   for (unsigned i = 0; i < gridDim.x; ++i) all += get_fresh<1>(partial + i).values[0];
//
// Each file has its own tickets, `__device__ std::uint32_t tickets[kMostTickets];`, which hold zero before the first launch
// and again after each: launches of its kernels must not overlap, as on the one stream of a backend.
#pragma once

#include <cstdint>

#include "backend/cuda/code/vector.cuh"

namespace ddp::cuda {

inline constexpr std::uint32_t kMostTickets = 65536;

// Whether all other blocks of `count` that share the ticket have called it; their writes before that are then visible to
// get_fresh(). All threads of the block call it. See "Memory Fence Functions" in NVIDIA's CUDA C++ Programming Guide.
__device__ inline bool is_last_block(std::uint32_t* ticket, std::uint32_t count) {
  __shared__ bool last;
  __syncthreads();
  if (count == 1) return true;
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    // Behind the barrier one thread's fences are enough for what all of the block have written and will read.
    __threadfence();
    // Counts to count - 1, then starts again at zero.
    last = atomicInc(ticket, count - 1) == count - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

// What many chunks leave is added in two levels, so that no block reads all: the last of some chunks adds what these have
// left, and the last of those blocks the rest.
struct TwoLevels {
  std::uint32_t chunks;
  std::uint32_t each;    // chunks that one block adds
  std::uint32_t groups;  // of these

  static TwoLevels of(std::uint32_t chunks) {
    std::uint32_t each = 1;
    while (each * each < chunks) ++each;
    return {chunks, each, (chunks + each - 1) / each};
  }
  // One for each group and one for these.
  __host__ __device__ std::uint32_t tickets() const { return groups + 1; }

  // Called by all threads of the block that has left what `chunk` has; add(first, step, count, all) adds `count` chunks,
  // every step-th from `first` on, and leaves them in the first one, or in the result if these are all.
  template <class Add>
  __device__ void add(std::uint32_t chunk, std::uint32_t* own, Add add) const {
    const std::uint32_t group = chunk / each;
    std::uint32_t* ticket = own + group;
    std::uint32_t first = group * each;
    std::uint32_t step = 1;
    std::uint32_t count = chunks - first < each ? chunks - first : each;
    bool all = groups == 1;
    // A loop, so that the code of `add` is there once.
#pragma unroll 1
    while (is_last_block(ticket, count)) {
      add(first, step, count, all);
      if (all) return;
      ticket = own + groups;
      first = 0;
      step = each;
      count = groups;
      all = true;
    }
  }
};

// Reads from the second-level cache, which all multiprocessors share.
template <unsigned kWidth>
__device__ inline Pack<float, kWidth> get_fresh(const float* p) {
  static_assert(kWidth == 1 || kWidth == 4);
  if constexpr (kWidth == 1) {
    return {__ldcg(p)};
  } else {
    const float4 some = __ldcg(reinterpret_cast<const float4*>(p));
    return {some.x, some.y, some.z, some.w};
  }
}

}  // namespace ddp::cuda
