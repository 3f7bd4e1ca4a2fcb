// The GPU backend without a GPU: its kernels run on the host, with stand-ins for CUDA's runtime, cuDNN and cuBLASLt.
// This tests all of our own code: indices, sums, barriers, workspaces, the order of work.
#include "backend/backend_case.h"
#include "backend/cuda/cuda_backend.h"

namespace ddp {
namespace {

BackendCase case_of(const std::string& name, Precision precision, bool deterministic, double tolerance) {
  const GpuBackendConfig config{.precision = precision, .deterministic = deterministic};
  return {"stand_in_" + name, [config] { return make_cuda_backend(config); }, tolerance};
}

}  // namespace

std::vector<BackendCase> backend_cases() {
  return {case_of("fp32", Precision::fp32, false, 1e-5), case_of("fp32_deterministic", Precision::fp32, true, 1e-5),
          case_of("bf16", Precision::bf16, false, 1e-2), case_of("fp16", Precision::fp16, false, 2e-3)};
}

}  // namespace ddp
