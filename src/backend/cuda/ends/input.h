// The kernel of an input, for its operator.
//
//   load_input(context, spec, Layout::nhwc, arguments);
#pragma once

#include <cstddef>

#include "backend/cuda/vendor/context.h"
#include "backend/op.h"

namespace ddp::cuda {

inline constexpr std::size_t kMostImageChannels = 8;
void load_input(const CudaContext& context, const InputSpec& spec, Layout layout, const ForwardArguments& a);

}  // namespace ddp::cuda
