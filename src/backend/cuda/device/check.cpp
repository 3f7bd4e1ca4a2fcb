#include "backend/cuda/device/check.h"

#include <unistd.h>

#include <array>
#include <string>

#include "base/error.h"

namespace ddp::cuda {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

[[noreturn]] void fail(ExitCode code, const char* library, const std::string& reason, const char* call,
                       const char* file, int line) {
  throw Error(code, fmt::format("{}: {}: {} at {}:{}: {}", host_name(), library, call, file, line, reason));
}

ExitCode exit_code(cudaError_t code) {
  switch (code) {
    case cudaErrorMemoryAllocation:
      return ExitCode::out_of_memory;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return ExitCode::preflight;
    default:
      return ExitCode::internal;
  }
}

}  // namespace

void check_cuda(cudaError_t code, const char* call, const char* file, int line) {
  if (code == cudaSuccess) return;
  // Clears the error, so that cudaGetLastError() after a later launch does not report it again.
  static_cast<void>(cudaGetLastError());
  fail(exit_code(code), "CUDA", fmt::format("{} ({})", cudaGetErrorString(code), cudaGetErrorName(code)), call, file,
       line);
}

void check_cudnn(cudnnStatus_t code, const char* call, const char* file, int line) {
  if (code == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> details{};
  cudnnGetLastErrorString(details.data(), details.size());
  const bool memory = code == CUDNN_STATUS_ALLOC_FAILED || code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  fail(memory ? ExitCode::out_of_memory : ExitCode::internal, "cuDNN",
       fmt::format("{} {}", cudnnGetErrorString(code), details.data()), call, file, line);
}

void check_cublas(cublasStatus_t code, const char* call, const char* file, int line) {
  if (code == CUBLAS_STATUS_SUCCESS) return;
  fail(code == CUBLAS_STATUS_ALLOC_FAILED ? ExitCode::out_of_memory : ExitCode::internal, "cuBLAS",
       cublasLtGetStatusString(code), call, file, line);
}

}  // namespace ddp::cuda
