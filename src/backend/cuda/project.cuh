// Shared by the kernels of project.h.
#pragma once

#include <cstdint>

#include "backend/cuda/batch_norm.cuh"
#include "backend/cuda/expand.cuh"
#include "backend/cuda/project.h"

namespace ddp::cuda {

inline constexpr std::uint32_t kMostInputs = 9 * kSliceChannels;
inline constexpr std::uint32_t kMostPairs = 6;  // of units of the result

// Calls f(std::integral_constant) with a number of pairs of units, at least as many as the outputs fill.
template <class F>
void with_pairs(std::int64_t outputs, F f) {
  const std::int64_t pairs = (outputs + 2 * kUnitChannels - 1) / (2 * kUnitChannels);
  static_assert(kMostPairs == 6);
  if (pairs <= 1) {
    f(std::integral_constant<std::uint32_t, 1>());
  } else if (pairs <= 2) {
    f(std::integral_constant<std::uint32_t, 2>());
  } else if (pairs <= 4) {
    f(std::integral_constant<std::uint32_t, 4>());
  } else {
    f(std::integral_constant<std::uint32_t, 6>());
  }
}

inline Normalizer normalizer_of(const ProjectNorm& norm) {
  return normalizer_of(*norm.spec, norm.means, norm.weight, norm.bias);
}

// The weights [outputs][channels] of a slice of 64 channels; zero where there are none.
template <std::uint32_t kPairs>
__device__ inline void load_slice(const float* weights, std::uint32_t outputs, std::uint32_t channels,
                                  std::uint32_t slice, Unit* tile) {
  for (std::uint32_t i = expand_thread(); i < kPairs * 2 * kUnitChannels * kSliceChannels; i += kThreads) {
    const std::uint32_t output = i / kSliceChannels;
    const std::uint32_t in_slice = i % kSliceChannels;
    const std::uint32_t channel = slice * kSliceChannels + in_slice;
    const bool inside = output < outputs && channel < channels;
    put(tile[output * kSlicePitch + in_slice / kUnitChannels].values, in_slice % kUnitChannels,
        inside ? weights[static_cast<std::size_t>(output) * channels + channel] : 0.0F);
  }
}

}  // namespace ddp::cuda
