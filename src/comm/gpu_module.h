// The loadable module with all code for NVIDIA GPUs: opened at run time, so that one binary starts on every machine.
//
//   std::shared_ptr<GpuModule> gpus = open_gpu_module();      // throws Error(preflight) that says what is missing
//   for (const GpuInfo& gpu : gpus->visible()) ...
//   std::unique_ptr<Backend> backend = gpus->make_backend({.ordinal = local_rank});
//   std::unique_ptr<DeviceCommunicator> sums = gpus->make_nccl_communicator(ranks, *backend);
//
// The module, libddp_cuda.so, is backend/cuda and comm/nccl. It lies beside the program or where DDP_CUDA_MODULE says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/gpu.h"
#include "comm/communicator.h"
#include "comm/device_communicator.h"

namespace ddp {

class GpuModule {
 public:
  GpuModule() = default;
  GpuModule(const GpuModule&) = delete;
  GpuModule& operator=(const GpuModule&) = delete;
  virtual ~GpuModule() = default;

  // "CUDA 13.0, driver 13.0, cuDNN 9.19.0, NCCL 2.28.9".
  virtual std::string versions() const = 0;
  // The GPUs that this process may use, in the order of CUDA_VISIBLE_DEVICES. Throws Error(preflight) that says why
  // there are none: no driver, a driver too old, no visible card.
  virtual std::vector<GpuInfo> visible() = 0;
  // Makes the GPU the process's before any other call, so that no other card ever holds a context of it.
  virtual std::unique_ptr<Backend> make_backend(const GpuBackendConfig& config) = 0;
  // NCCL among `ranks`, each with a GPU of its own; collective.
  virtual std::unique_ptr<DeviceCommunicator> make_nccl_communicator(Communicator& ranks, Backend& backend) = 0;
};

// Throws Error(preflight) where the module was not built, cannot be loaded, or is another version's.
std::shared_ptr<GpuModule> open_gpu_module();

// The module's one entry point, by its C name; `program_version` must be the module's own, else it returns null.
extern "C" using DdpOpenGpuModule = GpuModule * (*)(const char* program_version);
inline constexpr const char* kGpuModuleEntry = "ddp_open_gpu_module";

}  // namespace ddp
