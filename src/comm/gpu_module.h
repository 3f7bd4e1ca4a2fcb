// The loadable module with all code for NVIDIA GPUs: opened at run time, so that one binary starts on every machine.
//
//   std::shared_ptr<GpuModule> gpus = open_gpu_module();      // throws Error(preflight) that says what is missing
//   for (const GpuInfo& gpu : gpus->visible()) ...
//   std::unique_ptr<Backend> backend = gpus->make_backend({.ordinal = local_rank});
//   std::unique_ptr<DeviceCommunicator> sums = gpus->make_nccl_communicator(ranks, backend->device());
//
// The module, libddp_cuda.so, is backend/cuda and comm/nccl. It is located beside the program or at DDP_CUDA_MODULE.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/gpu.h"
#include "backend/gpu_trace.h"
#include "comm/communicator.h"
#include "comm/sums/device_communicator.h"

namespace ddp {

class GpuModule {
 public:
  GpuModule() = default;
  GpuModule(const GpuModule&) = delete;
  GpuModule& operator=(const GpuModule&) = delete;
  virtual ~GpuModule() = default;

  // "CUDA 13.0, driver 13.0, cuDNN 9.19.0, NCCL 2.28.9".
  virtual std::string versions() const = 0;
  // The GPUs that this process may use, in the order of CUDA_VISIBLE_DEVICES. Throws Error(preflight) with the reason
  // if there are none: no driver, driver too old, no visible GPU.
  virtual std::vector<GpuInfo> visible() = 0;
  // Selects the GPU before any other CUDA call, so that the process creates no context on another GPU.
  virtual std::unique_ptr<Backend> make_backend(const GpuBackendConfig& config) = 0;
  // A backend that plans for a GPU that is only described: it has operators, but no memory and no arithmetic. Throws
  // Error(preflight) where this build or its cuDNN cannot plan for such a GPU, Error(usage) where cuDNN does not
  // accept the text as a description.
  virtual std::unique_ptr<Backend> make_described_backend(const GpuDescription& gpu,
                                                          const GpuBackendConfig& config) = 0;
  // Collective: NCCL among `ranks`, each with its own GPU.
  virtual std::unique_ptr<DeviceCommunicator> make_nccl_communicator(Communicator& ranks,
                                                                     const DeviceContext& device) = 0;
  // Records what the GPU executes from now on. Throws Error(preflight) that says why it cannot.
  virtual std::unique_ptr<GpuTrace> start_trace() = 0;
};

// Throws Error(preflight) if the module was not built, cannot be loaded, or has another version.
std::shared_ptr<GpuModule> open_gpu_module();
// The same on a machine without a driver, for what needs no GPU.
std::shared_ptr<GpuModule> open_gpu_module_without_driver();

// The only entry point of the module, with C linkage; returns null if `program_version` differs from the module's
// version.
extern "C" using DdpOpenGpuModule = GpuModule * (*)(const char* program_version);
inline constexpr const char* kGpuModuleEntry = "ddp_open_gpu_module";

}  // namespace ddp
