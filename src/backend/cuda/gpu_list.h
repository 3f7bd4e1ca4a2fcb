// Explains why there is no GPU, from the results of the CUDA runtime.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>
#include <string>

namespace ddp::cuda {

// The CUDA runtime's answer to the query for its devices.
struct GpuSearch {
  cudaError_t result = cudaSuccess;         // of cudaGetDeviceCount
  int count = 0;                            // devices, if the result is cudaSuccess
  int driver_version = 0;                   // from cudaDriverGetVersion; 0: no driver
  int runtime_version = 0;                  // from cudaRuntimeGetVersion
  std::optional<std::string> visible_list;  // CUDA_VISIBLE_DEVICES
};

// Why no GPU can be used; empty if one can.
std::string why_no_gpu(const GpuSearch& search);

// 13000 -> "13.0".
std::string cuda_version_text(int version);

}  // namespace ddp::cuda
