// A module with little more than an entry point: it lists one GPU and creates nothing.
#include <cstring>
#include <stdexcept>

#include "base/error.h"
#include "comm/gpu_module.h"

namespace ddp {
namespace {

class StandIn final : public GpuModule {
 public:
  std::string versions() const override { return "a stand-in"; }
  std::vector<GpuInfo> visible() override {
    GpuInfo gpu;
    gpu.name = "stand-in GPU";
    return {gpu};
  }
  std::unique_ptr<Backend> make_backend(const GpuBackendConfig& config) override {
    throw Error(ExitCode::out_of_memory, "thrown by the module for GPU " + std::to_string(config.ordinal));
  }
  std::unique_ptr<Backend> make_described_backend(const GpuDescription& gpu, const GpuBackendConfig&) override {
    throw Error(ExitCode::preflight, "thrown by the module for " + gpu.name);
  }
  std::unique_ptr<DeviceCommunicator> make_nccl_communicator(Communicator& ranks,
                                                             const DeviceContext& device) override {
    return make_staged_communicator(ranks, device);
  }
  std::unique_ptr<GpuTrace> start_trace() override { throw Error(ExitCode::preflight, "thrown by the module"); }
};

}  // namespace

extern "C" [[gnu::visibility("default")]] GpuModule* ddp_open_gpu_module(const char* program_version) {
  return std::strcmp(program_version, DDP_VERSION) == 0 ? std::make_unique<StandIn>().release() : nullptr;
}

}  // namespace ddp
