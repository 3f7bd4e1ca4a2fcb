// The entry of the module for GPUs, libddp_cuda.so: comm/gpu_module.h opens it.
#include <cstring>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/cupti_trace.h"
#include "comm/gpu_module.h"
#include "comm/nccl/nccl_check.h"
#include "comm/nccl/nccl_communicator.h"

namespace ddp {
namespace {

class CudaModule final : public GpuModule {
 public:
  std::string versions() const override { return cuda_versions() + ", " + nccl_version(); }
  std::vector<GpuInfo> visible() override { return visible_gpus(); }
  std::unique_ptr<Backend> make_backend(const GpuBackendConfig& config) override { return make_cuda_backend(config); }
  std::unique_ptr<Backend> make_described_backend(const GpuDescription& gpu, const GpuBackendConfig& config) override {
    return make_described_cuda_backend(gpu, config);
  }
  std::unique_ptr<DeviceCommunicator> make_nccl_communicator(Communicator& ranks,
                                                             const DeviceContext& device) override {
    return ddp::make_nccl_communicator(ranks, device);
  }
  std::unique_ptr<GpuTrace> start_trace() override { return cuda::start_cupti_trace(); }
};

}  // namespace

extern "C" [[gnu::visibility("default")]] GpuModule* ddp_open_gpu_module(const char* program_version) {
  return std::strcmp(program_version, DDP_VERSION) == 0 ? std::make_unique<CudaModule>().release() : nullptr;
}

}  // namespace ddp
