// How kernels of 1x1 convolutions divide a matrix of rows and channels: a block takes a slice of 64 channels and a chunk of rows,
// tile by tile. The blocks of a chunk, which read the same rows of another tensor, follow one another.
//
//   const SliceTiling<64> tiling(rows_of(samples, spec.input, Layout::nhwc));
//   launch(stream, dim3(tiling.blocks()), threads, kernel, tiling, ...);
#pragma once

#include <cstdint>

#include "backend/cuda/code/divisor.cuh"
#include "backend/cuda/code/rows.cuh"
#include "backend/cuda/joined/row_tiles.cuh"

namespace ddp::cuda {

template <std::uint32_t kTileRows>
struct SliceTiling {
  Divisor slices;
  RowTiling tiling;

  explicit SliceTiling(const Rows& rows)
      : slices((rows.channels + kSliceChannels - 1) / kSliceChannels),
        tiling(rows.rows, kTileRows, slices.number() < kMostBlocksOfTiles ? kMostBlocksOfTiles / slices.number() : 1) {}

  std::uint32_t blocks() const { return slices.number() * tiling.chunks; }
  __host__ __device__ std::uint32_t chunks() const { return tiling.chunks; }
  __device__ std::uint32_t group() const { return slices.remainder(blockIdx.x, chunk()); }
  __device__ std::uint32_t chunk() const { return slices.quotient(blockIdx.x); }
  __device__ std::uint32_t channel(unsigned width) const { return group() * kSliceChannels + threadIdx.x * width; }
  __device__ std::uint32_t begin_of(std::uint32_t of_chunk) const {
    return of_chunk * tiling.tiles_per_chunk * kTileRows;
  }
  __device__ std::uint32_t rows_in(const Rows& rows, std::uint32_t of_chunk) const {
    const std::uint32_t begin = begin_of(of_chunk);
    const std::uint32_t most = tiling.tiles_per_chunk * kTileRows;
    return begin >= rows.rows ? 0 : rows.rows - begin < most ? rows.rows - begin : most;
  }
};

}  // namespace ddp::cuda
