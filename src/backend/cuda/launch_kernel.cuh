// Launches a kernel. Tests replace this file by one that runs kernels on the host.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "backend/cuda/check.h"

namespace ddp::cuda {

// More blocks than any GPU runs at once; beyond this limit a thread processes several elements.
inline constexpr std::size_t kMostBlocks = 8192;

// Enqueues a kernel and checks for launch errors.
template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, dim3 blocks, dim3 threads, void (*kernel)(Parameters...), Arguments... arguments) {
  kernel<<<blocks, threads, 0, stream>>>(static_cast<Parameters>(arguments)...);
  DDP_CUDA(cudaGetLastError());
}

}  // namespace ddp::cuda
