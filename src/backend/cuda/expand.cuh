// Shared by the kernels of expand.h and project.h; see Note [Tiles of rows] in the former.
#pragma once

#include <cstdint>

#include "backend/cuda/vector.cuh"
#include "backend/cuda/warp_matrix.cuh"

namespace ddp::cuda {

inline constexpr std::uint32_t kUnitChannels = 8;
inline constexpr std::uint32_t kInputUnits = 4;  // the most of the input
inline constexpr std::uint32_t kSliceUnits = 8;  // of the result that are processed at once
inline constexpr std::uint32_t kSliceChannels = kSliceUnits * kUnitChannels;
inline constexpr std::uint32_t kMostSlices = 3;
// Odd distances between rows, so that 8 neighbours are in different banks.
inline constexpr std::uint32_t kInputPitch = kInputUnits + 1;
inline constexpr std::uint32_t kSlicePitch = kSliceUnits + 1;

// Tiles of rows, of which a block takes a chunk.
struct RowTiling {
  std::uint32_t tiles, chunks, tiles_per_chunk;

  RowTiling(std::uint32_t rows, std::uint32_t tile_rows) {
    constexpr std::uint32_t kMostBlocks = 384;  // one wave, as kMostTiles of rows.cuh
    tiles = (rows + tile_rows - 1) / tile_rows;
    chunks = tiles < kMostBlocks ? tiles : kMostBlocks;
    tiles_per_chunk = (tiles + chunks - 1) / chunks;
  }
};

// Of the thread in its block, whose rows of threads are kSliceUnits wide.
__device__ inline unsigned expand_thread() { return threadIdx.y * kSliceUnits + threadIdx.x; }

__device__ inline Unit zero_unit() {
  Unit unit;
  for (unsigned j = 0; j < kUnitChannels; ++j) put(unit.values, j, 0.0F);
  return unit;
}

// kRows rows of the input from `first` on, zero from `end` on and in channels that do not exist.
template <std::uint32_t kRows>
__device__ inline void load_inputs(const __nv_bfloat16* x, std::uint32_t channels, std::uint32_t first,
                                   std::uint32_t end, Unit (&tile)[kRows * kInputPitch]) {
  for (std::uint32_t i = expand_thread(); i < kRows * kInputUnits; i += kThreads) {
    const std::uint32_t row = first + i / kInputUnits;
    const std::uint32_t channel = i % kInputUnits * kUnitChannels;
    const bool inside = row < end && channel < channels;
    tile[i / kInputUnits * kInputPitch + i % kInputUnits] =
        inside ? *reinterpret_cast<const Unit*>(x + static_cast<std::size_t>(row) * channels + channel) : zero_unit();
  }
}

// The weights [outputs][channels] of kOutputs outputs from `first` on; zero where there are none.
template <std::uint32_t kOutputs>
__device__ inline void load_weights(const float* weights, std::uint32_t outputs, std::uint32_t channels,
                                    std::uint32_t first, Unit (&tile)[kOutputs * kInputPitch]) {
  constexpr std::uint32_t kChannels = kInputUnits * kUnitChannels;
  for (std::uint32_t i = expand_thread(); i < kOutputs * kChannels; i += kThreads) {
    const std::uint32_t output = first + i / kChannels;
    const std::uint32_t channel = i % kChannels;
    const bool inside = output < outputs && channel < channels;
    put(tile[i / kChannels * kInputPitch + channel / kUnitChannels].values, channel % kUnitChannels,
        inside ? weights[output * channels + channel] : 0.0F);
  }
}

}  // namespace ddp::cuda
