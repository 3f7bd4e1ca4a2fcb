// Linear layers, by cuBLASLt or by our own kernels.
//
//   std::unique_ptr<Op> op = make_cuda_linear(context, spec);
#pragma once

#include <memory>

#include "backend/cuda/linear/linear_mma.h"
#include "backend/cuda/vendor/context.h"
#include "backend/op.h"

namespace ddp::cuda {

// x and y plain, by cuBLASLt.
std::unique_ptr<Op> make_cuda_linear(const CudaContext& context, const LinearSpec& spec);
// Plain or nhwc, by our own kernels (linear_mma.h), if they support the shape.
std::unique_ptr<Op> make_mma_linear(const CudaContext& context, const LinearSpec& spec, Layout layout);

}  // namespace ddp::cuda
