// Launches a kernel. Tests replace this file by one that runs kernels on the host.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device/check.h"
#include "backend/cuda/device/early_launch.h"

namespace ddp::cuda {

// More blocks than any GPU runs at once; beyond this limit a thread processes several elements.
inline constexpr std::size_t kMostBlocks = 8192;
// The same for blocks that take tiles of rows: one wave, as kMostTiles of rows.cuh.
inline constexpr std::uint32_t kMostBlocksOfTiles = 384;

// What a kernel has as its first parameter if its blocks may be started while the last ones of the kernel before it on the
// stream are still running ("Programmatic Dependent Launch" in NVIDIA's CUDA C++ Programming Guide): the pause between two
// kernels becomes shorter. Before anything else each thread calls wait(), behind which all that earlier kernels have written is visible.
//
//   __global__ void relu_kernel(const PreviousKernel previous, const float* x, float* y) {
//     previous.wait();
//     ...
//   }
//   launch(stream, blocks, kThreads, relu_kernel, x, y);   // without the parameter
struct PreviousKernel {
  __device__ void wait() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
#endif
  }
};

// Enqueues a kernel and checks for launch errors.
template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, dim3 blocks, dim3 threads, void (*kernel)(Parameters...), Arguments... arguments) {
  kernel<<<blocks, threads, 0, stream>>>(static_cast<Parameters>(arguments)...);
  DDP_CUDA(cudaGetLastError());
}

template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, dim3 blocks, dim3 threads, void (*kernel)(PreviousKernel, Parameters...),
            Arguments... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = kernels_start_early() ? 1 : 0;
  DDP_CUDA(cudaLaunchKernelEx(&config, kernel, PreviousKernel{}, static_cast<Parameters>(arguments)...));
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
