// Shared by the kernels of expand.h and project.h; see Note [Tiles of rows] in the former.
#pragma once

#include <cstdint>

#include "backend/cuda/code/vector.cuh"
#include "backend/cuda/code/warp_matrix.cuh"
#include "backend/cuda/device/element.h"
#include "backend/op.h"

namespace ddp::cuda {

inline constexpr std::uint32_t kUnitChannels = 8;
inline constexpr std::uint32_t kInputUnits = 4;  // the most of the input
inline constexpr std::uint32_t kSliceUnits = 8;  // of the result that are processed at once
inline constexpr std::uint32_t kSliceChannels = kSliceUnits * kUnitChannels;
inline constexpr std::uint32_t kMostSlices = 3;
// Odd distances between rows, so that 8 neighbours are in different banks.
inline constexpr std::uint32_t kInputPitch = kInputUnits + 1;
inline constexpr std::uint32_t kSlicePitch = kSliceUnits + 1;

// Tiles of rows, of which a block takes a chunk. Fewer rows have no more chunks, of which the last ones may be empty.
struct RowTiling {
  std::uint32_t tiles, chunks, tiles_per_chunk;

  RowTiling(std::uint32_t rows, std::uint32_t tile_rows, std::uint32_t most = kMostBlocksOfTiles) {
    tiles = (rows + tile_rows - 1) / tile_rows;
    chunks = tiles < most ? tiles : most;
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

// What the kernels support of a convolution's shape and epilogue: whole units of channels.
inline bool multiplies_units(Element element, const ConvSpec& s) {
  return element == Element::bf16 && s.window == Window2d{} && s.groups == 1 && !s.bias && !s.relu &&
         s.input_gradient && s.input.channels % kUnitChannels == 0 && s.output_channels % kUnitChannels == 0;
}

// kRows rows from `first` on, zero from `end` on and in channels that do not exist, with kUnits + 1 units from one row to the
// next.
template <std::uint32_t kRows, std::uint32_t kUnits = kInputUnits>
__device__ inline void load_rows(const __nv_bfloat16* x, std::uint32_t channels, std::uint32_t first, std::uint32_t end,
                                 Unit* tile) {
  for (std::uint32_t i = expand_thread(); i < kRows * kUnits; i += kThreads) {
    const std::uint32_t row = first + i / kUnits;
    const std::uint32_t channel = i % kUnits * kUnitChannels;
    const bool inside = row < end && channel < channels;
    tile[i / kUnits * (kUnits + 1) + i % kUnits] =
        inside ? *reinterpret_cast<const Unit*>(x + static_cast<std::size_t>(row) * channels + channel) : zero_unit();
  }
}

// Of the weights [outputs][channels] those of kOutputs outputs and kUnits units of channels, from the first ones on; zero where
// there are none.
template <std::uint32_t kOutputs, std::uint32_t kUnits = kInputUnits>
__device__ inline void load_weights(const float* weights, std::uint32_t outputs, std::uint32_t channels,
                                    std::uint32_t first_output, std::uint32_t first_channel, Unit* tile) {
  constexpr std::uint32_t kChannels = kUnits * kUnitChannels;
  for (std::uint32_t i = expand_thread(); i < kOutputs * kChannels; i += kThreads) {
    const std::uint32_t output = first_output + i / kChannels;
    const std::uint32_t of_tile = i % kChannels;
    const std::uint32_t channel = first_channel + of_tile;
    const bool inside = output < outputs && channel < channels;
    put(tile[i / kChannels * (kUnits + 1) + of_tile / kUnitChannels].values, of_tile % kUnitChannels,
        inside ? weights[output * channels + channel] : 0.0F);
  }
}

}  // namespace ddp::cuda
