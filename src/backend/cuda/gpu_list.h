// Why there is no GPU: from what CUDA's runtime returned to a sentence for people.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>
#include <string>

namespace ddp::cuda {

// The CUDA runtime's answer to the query for its devices.
struct GpuSearch {
  cudaError_t result = cudaSuccess;         // of cudaGetDeviceCount
  int count = 0;                            // devices, where the result is cudaSuccess
  int driver_version = 0;                   // as cudaDriverGetVersion gives it; 0: no driver
  int runtime_version = 0;                  // as cudaRuntimeGetVersion gives it
  std::optional<std::string> visible_list;  // CUDA_VISIBLE_DEVICES
};

// Why no GPU can be used; empty where one can.
std::string why_no_gpu(const GpuSearch& search);

// 13000 -> "13.0", as CUDA counts.
std::string cuda_version_text(int version);

}  // namespace ddp::cuda
