// Products of tiles in shared memory, of rows and 64 channels of a convolution's result, with tiles of its input or its weights.
//
//   const WarpPart<2> part;                                                    // of a tile of 64 rows
//   add_data_products<kSlicePitch>(part, gradients, weights, data_sums);       // the input's gradient
//   add_weight_products<kSlicePitch>(part, gradients, inputs, weight_sums);    // the weights' gradient
#pragma once

#include <cstdint>

#include "backend/cuda/code/warp_matrix.cuh"
#include "backend/cuda/joined/row_tiles.cuh"

namespace ddp::cuda {

// What a warp computes: 16 rows, or 16 channels of the result, and kUnits units of channels of the input. Four warps compute
// all of 64.
template <unsigned kUnits>
struct WarpPart {
  unsigned band;   // the first row or channel of the result
  unsigned units;  // the first of the input
  unsigned lane, matrix, line;

  __device__ WarpPart()
      : band(tile_thread() / 32 % 4 * 16),
        units(tile_thread() / 128 * kUnits),
        lane(tile_thread() % 32),
        matrix(lane / 8),
        line(lane % 8) {}

  // Calls use(row in the band, its unit of the input, channel in the unit, the two sums from there on).
  template <class Use>
  __device__ void each_pair(const float (&sums)[kUnits][4], Use use) const {
    for (unsigned unit = 0; unit < kUnits; ++unit) {
      for (unsigned half = 0; half < 2; ++half) {
        use(lane / 4 + 8 * half, units + unit, lane % 4 * 2, sums[unit][2 * half], sums[unit][2 * half + 1]);
      }
    }
  }
};

// sums += 16 rows of the gradients x the weights of 64 outputs, of which rows are kPitch units apart.
template <std::uint32_t kPitch, unsigned kUnits>
__device__ inline void add_data_products(const WarpPart<kUnits>& p, const Unit* gradients, const Unit* weights,
                                         float (&sums)[kUnits][4]) {
#pragma unroll
  for (unsigned step = 0; step < kSliceChannels / 16; ++step) {
    const Matrices a =
        load_matrices(gradients + (p.band + p.matrix % 2 * 8 + p.line) * kSlicePitch + 2 * step + p.matrix / 2);
#pragma unroll
    for (unsigned pair = 0; pair < kUnits / 2; ++pair) {
      const Matrices b = load_transposed(weights + (step * 16 + p.matrix % 2 * 8 + p.line) * kPitch + p.units +
                                         2 * pair + p.matrix / 2);
      multiply_add(sums[2 * pair], a, b.values[0], b.values[1]);
      multiply_add(sums[2 * pair + 1], a, b.values[2], b.values[3]);
    }
  }
}

// sums += 16 channels of the transposed gradients x the inputs of 64 rows, which are kPitch units apart.
template <std::uint32_t kPitch, unsigned kUnits>
__device__ inline void add_weight_products(const WarpPart<kUnits>& p, const Unit* gradients, const Unit* inputs,
                                           float (&sums)[kUnits][4]) {
  constexpr unsigned kRows = 64;
#pragma unroll
  for (unsigned step = 0; step < kRows / 16; ++step) {
    const Matrices a = load_transposed(gradients + (step * 16 + p.matrix / 2 * 8 + p.line) * kSlicePitch +
                                       p.band / kUnitChannels + p.matrix % 2);
#pragma unroll
    for (unsigned pair = 0; pair < kUnits / 2; ++pair) {
      const Matrices b = load_transposed(inputs + (step * 16 + p.matrix % 2 * 8 + p.line) * kPitch + p.units +
                                         2 * pair + p.matrix / 2);
      multiply_add(sums[2 * pair], a, b.values[0], b.values[1]);
      multiply_add(sums[2 * pair + 1], a, b.values[2], b.values[3]);
    }
  }
}

// sums += 16 rows x the transposed weights of 2 kPairs units of outputs, of 64 channels.
template <std::uint32_t kPairs>
__device__ inline void add_row_products(const Unit* inputs, const Unit* weights, float (&sums)[kPairs][2][4]) {
  const unsigned matrix = tile_thread() % 32 / 8;
  const unsigned line = tile_thread() % 8;
#pragma unroll
  for (unsigned step = 0; step < kSliceChannels / 16; ++step) {
    const Matrices a = load_matrices(inputs + (matrix % 2 * 8 + line) * kSlicePitch + 2 * step + matrix / 2);
#pragma unroll
    for (unsigned pair = 0; pair < kPairs; ++pair) {
      const Matrices b =
          load_matrices(weights + ((2 * pair + matrix / 2) * 8 + line) * kSlicePitch + 2 * step + matrix % 2);
      multiply_add(sums[pair][0], a, b.values[0], b.values[1]);
      multiply_add(sums[pair][1], a, b.values[2], b.values[3]);
    }
  }
}

}  // namespace ddp::cuda
