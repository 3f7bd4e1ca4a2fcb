// Shared by the kernels of conv1x1.h.
#pragma once

#include <cstdint>

#include "backend/cuda/joined/conv1x1.h"
#include "backend/cuda/joined/slice_tiling.cuh"
#include "backend/cuda/norm/batch_norm.cuh"

namespace ddp::cuda {

// Behind a normalisation, whose coefficients are in shared memory.
inline constexpr std::uint32_t kMostNormalised = 512;

// A unit of a row in whole registers.
struct alignas(16) RowPack {
  std::uint32_t pairs[kUnitChannels / 2];

  // The values of channels j and j + 1 of a pair: a bf16 is the upper half of a float.
  __device__ float lower(unsigned j) const { return __uint_as_float(pairs[j / 2] << 16U); }
  __device__ float upper(unsigned j) const { return __uint_as_float(pairs[j / 2] & 0xFFFF0000U); }
};

// Rounded to bf16.
__device__ inline std::uint32_t pair_of(float lower, float upper) {
  const float values[2] = {lower, upper};
  Pack<__nv_bfloat16, 2> pack;
  put_some(pack.values, 0, values);
  std::uint32_t pair = 0;
  std::memcpy(&pair, &pack, sizeof(pair));
  return pair;
}

// f(value, its place in the unit) for each value.
template <class F>
__device__ inline RowPack each_value(const RowPack& pack, F f) {
  RowPack result{};
  for (unsigned j = 0; j < kUnitChannels; j += 2) {
    result.pairs[j / 2] = pair_of(f(pack.lower(j), j), f(pack.upper(j), j + 1));
  }
  return result;
}

// The calling thread's unit of a row of a tile of 64 channels.
__device__ inline RowPack get_pack_of(const Unit* tile, std::uint32_t row) {
  return *reinterpret_cast<const RowPack*>(tile + row * kSlicePitch + threadIdx.x);
}
__device__ inline void put_pack(Unit* tile, std::uint32_t row, const RowPack& pack) {
  *reinterpret_cast<RowPack*>(tile + row * kSlicePitch + threadIdx.x) = pack;
}

// The weights of 64 outputs and 64 channels, from the first ones on.
__device__ inline void load_factors(const float* weights, std::uint32_t channels, std::uint32_t first_output,
                                    std::uint32_t first_channel, Unit* tile) {
  for (std::uint32_t i = tile_thread(); i < kSliceChannels * kSliceUnits; i += blockDim.x * blockDim.y) {
    const std::uint32_t output = i / kSliceUnits;
    const std::uint32_t unit = i % kSliceUnits;
    const std::uint32_t channel = first_channel + unit * kUnitChannels;
    float values[kUnitChannels];
    get_some(weights, static_cast<std::size_t>(first_output + output) * channels + channel, values);
    put_some(tile[output * kSlicePitch + unit].values, 0, values);
  }
}

// The row of the input that a row of the result is computed from: the same, or with a stride.
struct EveryRow {
  __device__ std::uint32_t operator()(std::uint32_t row) const { return row; }
};
struct StridedRows {
  std::uint32_t width, positions;        // of the result
  std::uint32_t in_width, in_positions;  // of the input
  std::uint32_t stride;

  __device__ std::uint32_t operator()(std::uint32_t row) const {
    const std::uint32_t sample = row / positions;
    const std::uint32_t position = row - sample * positions;
    const std::uint32_t line = position / width;
    return sample * in_positions + stride * (line * in_width + (position - line * width));
  }
};
// Calls f with the one of a convolution.
template <class F>
void with_input_rows(const ConvSpec& s, F f) {
  const Shape result = s.convolved();
  if (s.window.stride.vertical == 1) return f(EveryRow{});
  f(StridedRows{static_cast<std::uint32_t>(result.width), static_cast<std::uint32_t>(result.height * result.width),
                static_cast<std::uint32_t>(s.input.width), static_cast<std::uint32_t>(s.input.height * s.input.width),
                static_cast<std::uint32_t>(s.window.stride.vertical)});
}

// The calling thread's part of a tile of rows x 64 channels: a unit of every blockDim.y-th row from `first` on; zero from `end` on.
template <unsigned kCount, class InputRows = EveryRow>
__device__ inline void load_packs(const __nv_bfloat16* x, std::uint32_t channels, std::uint32_t channel,
                                  std::uint32_t first, std::uint32_t end, RowPack (&packs)[kCount],
                                  const InputRows& rows = {}) {
#pragma unroll
  for (unsigned i = 0; i < kCount; ++i) {
    const std::uint32_t row = first + threadIdx.y + i * blockDim.y;
    packs[i] = {};
    if (row < end) {
      packs[i] = *reinterpret_cast<const RowPack*>(x + static_cast<std::size_t>(rows(row)) * channels + channel);
    }
  }
}

// The normalisation in front, of the batch's own statistics, or in evaluation of the running ones.
inline Normalizer normalizer_in_front(const BatchNormSpec& spec, const NormPointers& norm) {
  Normalizer normalizer = normalizer_of(spec, norm.means, norm.weight, norm.bias);
  if (norm.means == nullptr) {
    normalizer.means = norm.statistics;
    normalizer.variances = true;
  }
  return normalizer;
}

}  // namespace ddp::cuda
