// Whether this build can plan for a GPU that is only described.
//
//   check_can_describe(cudnnGetVersion());
//   check_has_kernels("80-real,90", "NVIDIA T4", 7, 5);      // throws: compute capability 7.5 is too old
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::cuda {

// Throws Error(preflight) for a cuDNN that plans only for GPUs that are here; 91900 is 9.19.0.
void check_can_describe(std::size_t cudnn_version);

// Whether code compiled for `architectures`, as CMake's CUDA_ARCHITECTURES names them with commas between, runs on a
// GPU of this compute capability: machine code of the same major version and not of a later minor one, or PTX of a
// version that is not later. "native" and "all" count as yes.
bool runs_on(std::string_view architectures, int major, int minor);

// Throws Error(preflight) unless runs_on().
void check_has_kernels(std::string_view architectures, const std::string& gpu, int major, int minor);

}  // namespace ddp::cuda
