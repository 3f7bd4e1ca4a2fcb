// The checks of CUDA, cuDNN and cuBLAS calls.
//
//   DDP_CUDA(cudaMemsetAsync(data, 0, bytes, stream));
//   DDP_CUDNN(cudnnCreate(&handle));
//   DDP_CUBLAS(cublasLtCreate(&handle));
//
// A failed call throws Error with the call, the source location, the host and the library's message:
// ExitCode::out_of_memory if out of memory, ExitCode::preflight if driver or GPU are incompatible with this build,
// otherwise ExitCode::internal.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

namespace ddp::cuda {

void check_cuda(cudaError_t code, const char* call, const char* file, int line);
void check_cudnn(cudnnStatus_t code, const char* call, const char* file, int line);
void check_cublas(cublasStatus_t code, const char* call, const char* file, int line);

}  // namespace ddp::cuda

#define DDP_CUDA(call) ::ddp::cuda::check_cuda((call), #call, __FILE__, __LINE__)
#define DDP_CUDNN(call) ::ddp::cuda::check_cudnn((call), #call, __FILE__, __LINE__)
#define DDP_CUBLAS(call) ::ddp::cuda::check_cublas((call), #call, __FILE__, __LINE__)
