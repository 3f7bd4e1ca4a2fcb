// What all operators of a backend share, which owns the handles and outlives its operators.
//
//   std::unique_ptr<Op> op = make_cuda_conv(context, spec, kernels);
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device/element.h"
#include "backend/cuda/vendor/cudnn_graph.h"

namespace ddp::cuda {

// Kernels that decompose an index use 32 bits; operators reject larger activations.
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 31U;

// All work goes to the stream.
struct CudaContext {
  cudaStream_t stream = nullptr;
  cudnnHandle_t cudnn = nullptr;
  cublasLtHandle_t cublas = nullptr;
  Precision precision = Precision::fp32;
  bool deterministic = false;
  // In place of the stream and the handles where the GPU is only described: operators are made, and never run.
  const Descriptor* described = nullptr;
  std::size_t cache_bytes = 0;   // the second-level cache
  std::size_t shared_bytes = 0;  // of shared memory, the most that a block may ask for

  PlanTarget plan_target() const { return {cudnn, described}; }
  Element element() const { return element_of(precision); }
};

}  // namespace ddp::cuda
