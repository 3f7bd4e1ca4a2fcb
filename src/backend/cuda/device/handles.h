// RAII owners of CUDA handles.
//
//   Stream stream;                       // a non-blocking stream of the current device
//   Event done;
//   DDP_CUDA(cudaEventRecord(done.get(), stream.get()));
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <memory>
#include <type_traits>

#include "backend/cuda/device/check.h"

namespace ddp::cuda {

// Owns a handle that `Destroy` destroys. Errors in the destructor are ignored, since nothing can be done about them.
template <class Handle, auto Destroy>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Handle get() const { return handle_.get(); }

 private:
  struct Deleter {
    void operator()(std::remove_pointer_t<Handle>* handle) const noexcept { static_cast<void>(Destroy(handle)); }
  };
  std::unique_ptr<std::remove_pointer_t<Handle>, Deleter> handle_;
};

class Stream : public Owned<cudaStream_t, cudaStreamDestroy> {
 public:
  Stream() : Owned(make()) {}

 private:
  static cudaStream_t make() {
    cudaStream_t stream = nullptr;
    DDP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
  }
};

// An event with timing enabled.
class Event : public Owned<cudaEvent_t, cudaEventDestroy> {
 public:
  Event() : Owned(make()) {}

 private:
  static cudaEvent_t make() {
    cudaEvent_t event = nullptr;
    DDP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDefault));
    return event;
  }
};

using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

class CudnnHandle : public Owned<cudnnHandle_t, cudnnDestroy> {
 public:
  explicit CudnnHandle(cudaStream_t stream) : Owned(make()) { DDP_CUDNN(cudnnSetStream(get(), stream)); }

 private:
  static cudnnHandle_t make() {
    cudnnHandle_t handle = nullptr;
    DDP_CUDNN(cudnnCreate(&handle));
    return handle;
  }
};

class CublasLtHandle : public Owned<cublasLtHandle_t, cublasLtDestroy> {
 public:
  CublasLtHandle() : Owned(make()) {}

 private:
  static cublasLtHandle_t make() {
    cublasLtHandle_t handle = nullptr;
    DDP_CUBLAS(cublasLtCreate(&handle));
    return handle;
  }
};

}  // namespace ddp::cuda
