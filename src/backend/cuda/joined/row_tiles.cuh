// Tiles of rows of a 1x1 convolution's activations in shared memory.
//
// Note [Tiles of rows]
// An activation is a matrix of rows (samples x positions) and channels. A block takes a chunk of rows, tile by tile, of 64 channels
// at once, in units of eight. The order of additions depends only on shapes.
#pragma once

#include <cstdint>

#include "backend/cuda/code/vector.cuh"
#include "backend/cuda/code/warp_matrix.cuh"
#include "backend/cuda/device/element.h"
#include "backend/op.h"

namespace ddp::cuda {

inline constexpr std::uint32_t kUnitChannels = 8;
inline constexpr std::uint32_t kSliceUnits = 8;  // of the result that are processed at once
inline constexpr std::uint32_t kSliceChannels = kSliceUnits * kUnitChannels;
// An odd distance between rows, so that 8 neighbours are in different banks.
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

// Number of the thread in its block, whose rows of threads are kSliceUnits wide.
__device__ inline unsigned tile_thread() { return threadIdx.y * kSliceUnits + threadIdx.x; }

// What the kernels support of a convolution's shape and epilogue: whole units of channels.
inline bool multiplies_units(Element element, const ConvSpec& s) {
  return element == Element::bf16 && s.window == Window2d{} && s.groups == 1 && !s.bias && !s.relu &&
         s.input_gradient && s.input.channels % kUnitChannels == 0 && s.output_channels % kUnitChannels == 0;
}

}  // namespace ddp::cuda
