// Launches a kernel. Tests replace this file by one that runs kernels on the host.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/check.h"

namespace ddp::cuda {

// More blocks than any GPU runs at once; beyond this limit a thread processes several elements.
inline constexpr std::size_t kMostBlocks = 8192;
// The same for blocks that take tiles of rows: one wave, as kMostTiles of rows.cuh.
inline constexpr std::uint32_t kMostBlocksOfTiles = 384;

// Enqueues a kernel and checks for launch errors.
template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, dim3 blocks, dim3 threads, void (*kernel)(Parameters...), Arguments... arguments) {
  kernel<<<blocks, threads, 0, stream>>>(static_cast<Parameters>(arguments)...);
  DDP_CUDA(cudaGetLastError());
}

// The same for a kernel whose blocks have a Shared in shared memory, which may exceed the 48 KiB of variables in it:
// dynamic_shared<Shared>(). Compute capability 8.0 has 163 KiB for a block, 9.0 has 227 KiB.
template <class Shared, class... Parameters, class... Arguments>
void launch_with(cudaStream_t stream, dim3 blocks, dim3 threads, void (*kernel)(Parameters...),
                 Arguments... arguments) {
  DDP_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(sizeof(Shared))));
  kernel<<<blocks, threads, sizeof(Shared), stream>>>(static_cast<Parameters>(arguments)...);
  DDP_CUDA(cudaGetLastError());
}
template <class Shared>
__device__ inline Shared& dynamic_shared() {
  static_assert(alignof(Shared) <= 16);
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  return *reinterpret_cast<Shared*>(shared_bytes);
}

}  // namespace ddp::cuda
