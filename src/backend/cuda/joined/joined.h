// Operators that compute what several do one after the other, in nhwc, so that what lies between them is not stored.
//
//   std::unique_ptr<Op> op = make_cuda_norm_conv1x1(context, specs, kJoinedLayout);     // null: they stay separate
#pragma once

#include <memory>
#include <span>

#include "backend/cuda/vendor/context.h"
#include "backend/op.h"

namespace ddp::cuda {

inline constexpr Layout kJoinedLayout = Layout::nhwc;
// A 1x1 convolution with the batch normalisation behind it, and with that in front of it.
std::unique_ptr<Op> make_cuda_norm_conv1x1(const CudaContext& context, std::span<const OpSpec> specs, Layout layout);

}  // namespace ddp::cuda
