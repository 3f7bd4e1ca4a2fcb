// Pooling, plain or nhwc, the same on both sides; and its kernels, as functions that enqueue them on a stream.
//
//   std::unique_ptr<Op> op = make_cuda_pool(context, spec, Layout::nhwc);
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>

#include "backend/cuda/device/element.h"
#include "backend/cuda/vendor/context.h"
#include "backend/op.h"

namespace ddp::cuda {

// Bytes for the positions of the maxima, saved by forward for backward; 0 for averages.
std::size_t pool_saved_bytes(const PoolSpec& spec);
void pool_forward(cudaStream_t stream, Element element, const PoolSpec& spec, Layout layout, const void* x, void* y,
                  std::byte* saved);
void pool_backward(cudaStream_t stream, Element element, const PoolSpec& spec, Layout layout, const void* dy, void* dx,
                   std::byte* saved);

std::unique_ptr<Op> make_cuda_pool(const CudaContext& context, const PoolSpec& spec, Layout layout);

}  // namespace ddp::cuda
