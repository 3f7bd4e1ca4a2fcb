// The two ends of a network: its input, from images to the first activation, and its loss. See NetworkEnds.
//
//   softmax_cross_entropy(stream, Element::bf16, spec, arguments);
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "backend/cuda/device/element.h"
#include "backend/loss.h"
#include "backend/op.h"

namespace ddp::cuda {

// Converts images to the first activation.

inline constexpr std::size_t kMostImageChannels = 8;
void load_input(cudaStream_t stream, Element element, const InputSpec& spec, const InputArguments& arguments);

void softmax_cross_entropy(cudaStream_t stream, Element element, const LossSpec& spec, const LossArguments& arguments);

}  // namespace ddp::cuda
