// Shared by the kernels of project.h.
#pragma once

#include <cstdint>

#include "backend/cuda/joined/expand.cuh"
#include "backend/cuda/joined/project.h"
#include "backend/cuda/norm/batch_norm.cuh"

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

inline Normalizer normalizer_of(const BatchNormSpec& spec, const NormPointers& norm) {
  return normalizer_of(spec, norm.means, norm.weight, norm.bias);
}

// The weights of a slice of 64 channels; zero where there are none.
template <std::uint32_t kPairs>
__device__ inline void load_slice(const float* weights, std::uint32_t outputs, std::uint32_t channels,
                                  std::uint32_t slice, Unit* tile) {
  load_weights<kPairs * 2 * kUnitChannels, kSliceUnits>(weights, outputs, channels, 0, slice * kSliceChannels, tile);
}

}  // namespace ddp::cuda
