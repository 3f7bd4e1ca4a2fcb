// NVIDIA GPUs: enumeration, and the backend of one GPU.
//
//   for (const GpuInfo& gpu : visible_gpus()) ...        // throws Error(preflight) if there is none
//   std::unique_ptr<Backend> backend = make_cuda_backend({.ordinal = 0, .precision = Precision::bf16});
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/gpu.h"

namespace ddp {

// The GPUs that this process may use, in the order of CUDA_VISIBLE_DEVICES. Creates no context on any of them. Throws
// Error(preflight) with the reason if there are none: no driver, driver too old, no visible GPU.
std::vector<GpuInfo> visible_gpus();

// "CUDA 13.0, driver 13.0, cuDNN 9.19.0"; works without a driver.
std::string cuda_versions();

// The backend of one visible GPU. If the process has called nothing but visible_gpus() before, it creates no context on
// another GPU.
std::unique_ptr<Backend> make_cuda_backend(const GpuBackendConfig& config);

// Plans for a GPU that is only described, without a driver: operators can be chosen and made, but nothing is computed,
// and there is no memory and no FlatMath. Throws as GpuModule::make_described_backend() does.
std::unique_ptr<Backend> make_described_cuda_backend(const GpuDescription& gpu, const GpuBackendConfig& config);

}  // namespace ddp
