// Copies from global to shared memory that need no registers, so that many are in flight. Tests replace this file by one
// that copies at once.
//
//   copy_async<16>(shared, global);               // 4, 8 or 16 bytes, with this alignment
//   copy_async_if<16>(inside, shared, global);    // or zeros
//   wait_for_copies();                            // those of the calling thread
//   __syncthreads();
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ddp::cuda {

template <unsigned kBytes>
__device__ inline void copy_async(void* shared, const void* global) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  const auto target = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (kBytes == 16) {
    // Only this size may bypass the first-level cache.
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target), "l"(global) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(target), "l"(global), "n"(kBytes) : "memory");
  }
}

// Zeros if `exists` is false; `global` must be readable all the same, but is not read.
template <unsigned kBytes>
__device__ inline void copy_async_if(bool exists, void* shared, const void* global) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  const auto target = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  const std::uint32_t read = exists ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(global), "r"(read) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(global), "n"(kBytes), "r"(read)
                 : "memory");
  }
}

__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

}  // namespace ddp::cuda
