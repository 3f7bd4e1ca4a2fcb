// Whether kernels start early on this GPU (PreviousKernel of launch_kernel.cuh): tried on a chain of kernels, launched and as a
// CUDA graph, before it is relied on.
//
//   const Memory memory = device.memory().allocate(kEarlyLaunchBytes, "a trial");
//   const std::string failure = try_early_launch(stream, memory.data());
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddp::cuda {

inline constexpr std::uint32_t kEarlyValues = 65536;
inline constexpr std::size_t kEarlyLaunchBytes = std::size_t{2} * kEarlyValues * sizeof(std::uint32_t);

// From now on they do, if it works; otherwise returns the reason.
std::string try_early_launch(cudaStream_t stream, void* memory);
bool kernels_start_early();

// A step of the trial: to[i] = from[kEarlyValues - 1 - i] * kMixFactor + 1, of what another block has written.
inline constexpr std::uint32_t kMixFactor = 2654435761U;
void mix_values(cudaStream_t stream, const std::uint32_t* from, std::uint32_t* to);

}  // namespace ddp::cuda
