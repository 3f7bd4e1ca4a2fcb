// NVIDIA GPUs: which there are, and the backend of one of them.
//
//   for (const GpuInfo& gpu : visible_gpus()) ...        // throws Error(preflight) where there is none
//   std::unique_ptr<Backend> backend = make_cuda_backend({.ordinal = 0, .precision = Precision::bf16});
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/gpu.h"

namespace ddp {

// The GPUs that this process may use, in the order of CUDA_VISIBLE_DEVICES. Makes no context on any of them. Throws
// Error(preflight) that says why there are none: no driver, a driver too old, no visible card.
std::vector<GpuInfo> visible_gpus();

// "CUDA 13.0, driver 13.0, cuDNN 9.19.0"; works without a driver.
std::string cuda_versions();

// The backend of one visible GPU. It is the first to touch CUDA in a process that has called nothing but
// visible_gpus(), so no other card ever holds a context of this process.
std::unique_ptr<Backend> make_cuda_backend(const GpuBackendConfig& config);

}  // namespace ddp
