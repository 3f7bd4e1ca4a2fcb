// The first visible GPU in each precision; without a GPU, every test is skipped with a message.
#include "backend/backend_case.h"
#include "backend/cuda/cuda_backend.h"
#include "base/error.h"

namespace ddp {
namespace {

std::string why_no_gpu_here() {
  try {
    static_cast<void>(visible_gpus());
    return "";
  } catch (const Error& error) {
    return fmt::format("no GPU here: {}", error.what());
  }
}

BackendCase case_of(const std::string& name, Precision precision, bool deterministic, double tolerance) {
  const GpuBackendConfig config{.precision = precision, .deterministic = deterministic};
  return {"cuda_" + name, [config] { return make_cuda_backend(config); }, tolerance, deterministic, why_no_gpu_here};
}

}  // namespace

std::vector<BackendCase> backend_cases() {
  return {case_of("fp32", Precision::fp32, false, 1e-5),
          case_of("fp32_deterministic", Precision::fp32, true, 1e-5),
          case_of("tf32", Precision::tf32, false, 1e-2),
          case_of("bf16", Precision::bf16, false, 1e-2),
          case_of("bf16_deterministic", Precision::bf16, true, 1e-2),
          case_of("fp16", Precision::fp16, false, 2e-3)};
}

}  // namespace ddp
