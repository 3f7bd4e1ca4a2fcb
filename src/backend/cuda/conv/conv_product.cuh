// The product of forward and of the data gradient; see conv_mma.h. Each warp computes 16 pixels of kTiles times 8 channels
// at a time. With pooling the four pixels of a window are adjacent among these 16, so the values to average are in lanes of
// one warp.
//
//   Product product = plan_product(spec, 1, false);
//   product.source.values = x;
//   with_tiles(product.tiles, [&](auto tiles) { ... multiply_band<__nv_bfloat16, decltype(tiles)::value, false>(product, result, band, group, tile, places) ... });
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backend/arithmetic.h"
#include "backend/cuda/code/conv_tile.cuh"
#include "backend/op.h"

namespace ddp::cuda {

inline constexpr unsigned kMostWarps = 12;
inline constexpr unsigned kRowsOfTile = 16;

// Kernel parameters of a product; the result has `height` x `width` pixels of `outputs` channels before pooling.
struct Product {
  TileSource source;
  TileGrid grid;
  Taps taps;
  std::uint32_t samples;
  std::uint32_t height, width, outputs;
  Divisor across;  // pixels in a line, or windows of pooling
  std::uint32_t stride;
  std::int32_t pad_top;
  std::uint32_t steps;
  Divisor bands;
  std::uint32_t lines;          // a block computes this many lines of the result
  std::uint32_t tile_lines;     // ... and reads this many
  std::uint32_t groups, tiles;  // of output channels

  __host__ __device__ std::uint32_t all_bands() const { return samples * bands.number(); }
  __host__ __device__ std::uint32_t tile_units() const { return tile_lines * grid.columns * grid.pitch; }
};

struct Result {
  const uint2* weights;
  const float* bias;
  void* y;
  std::uint8_t* open;
  bool relu, pool;
  bool add;  // to what y holds; not with pooling
};

// Without pointers. No lines if not even one fits.
Product plan_product(const ConvSpec& spec, std::uint32_t parts, bool data);
// Kind of the gradient behind a convolution, or of values.
inline TileSource::Kind kind_of_gradient(const ConvSpec& spec) {
  return spec.average_pool ? TileSource::Kind::relu_and_pool
         : spec.relu       ? TileSource::Kind::relu
                           : TileSource::Kind::values;
}

// Calls f with the number of tiles as a constant.
template <class F>
void with_tiles(std::uint32_t tiles, F f) {
  if (tiles == 1) {
    f(std::integral_constant<unsigned, 1>{});
  } else if (tiles == 2) {
    f(std::integral_constant<unsigned, 2>{});
  } else if (tiles == 3) {
    f(std::integral_constant<unsigned, 3>{});
  } else if (tiles == 4) {
    f(std::integral_constant<unsigned, 4>{});
  } else if (tiles == 7) {
    f(std::integral_constant<unsigned, 7>{});
  } else {
    f(std::integral_constant<unsigned, Fragments::kMostTiles>{});
  }
}

// The position of pixel m of a band; with pooling, ordered by windows. `across`: pixels or windows in a line.
struct Pixel {
  std::uint32_t line, column;
};
__device__ inline Pixel pixel_of(std::uint32_t m, const Divisor& across, bool pool) {
  const std::uint32_t index = pool ? m / 4 : m;
  const std::uint32_t line = across.quotient(index);
  const std::uint32_t column = across.remainder(index, line);
  return pool ? Pixel{line * 2 + m % 4 / 2, column * 2 + m % 2} : Pixel{line, column};
}

// What is there, of two adjacent channels.
template <class T>
__device__ inline void add_pair(const T* y, std::size_t pixel, std::uint32_t channel, std::uint32_t channels,
                                float& first, float& second) {
  const std::size_t i = pixel * channels + channel;
  first += get(y, i);
  if (channel + 1 < channels) second += get(y, i + 1);
}

// A warp's 16 pixels from `first` on, of `pixels` in the band, which starts at pixel `band` of the result.
template <class T, unsigned kTiles>
__device__ void write_pixels(const Product& p, const Result& r, std::uint32_t group, const float (&sums)[kTiles][4],
                             std::uint32_t first, std::uint32_t pixels, std::size_t band) {
  const unsigned lane = threadIdx.x % 32;
  auto* y = static_cast<T*>(r.y);
#pragma unroll
  for (unsigned j = 0; j < kTiles; ++j) {
    const std::uint32_t channel = (group * kTiles + j) * kChannelsOfUnit + lane % 4 * 2;
    if (channel >= p.outputs) continue;
    const float bias0 = r.bias == nullptr ? 0.0F : r.bias[channel];
    const float bias1 = r.bias == nullptr || channel + 1 >= p.outputs ? 0.0F : r.bias[channel + 1];
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t m = first + lane / 4 + 8 * half;
      if (m >= pixels) continue;
      float value0 = sums[j][2 * half] + bias0;
      float value1 = sums[j][2 * half + 1] + bias1;
      if (r.add) add_pair(y, band + m, channel, p.outputs, value0, value1);
      put_pair(y, band + m, channel, p.outputs, r.relu ? relu(value0) : value0, r.relu ? relu(value1) : value1);
    }
  }
}

// The same with pooling: lanes 4 and 8 apart hold the other pixels of a window.
template <class T, unsigned kTiles>
__device__ void write_windows(const Product& p, const Result& r, std::uint32_t group, const float (&sums)[kTiles][4],
                              std::uint32_t first, std::uint32_t pixels, std::size_t band) {
  const unsigned lane = threadIdx.x % 32;
  auto* y = static_cast<T*>(r.y);
  const unsigned position = lane / 4 % 4;
  const auto over_window = [](float value) {
    value += __shfl_xor_sync(0xFFFFFFFFU, value, 4U);
    return value + __shfl_xor_sync(0xFFFFFFFFU, value, 8U);
  };
#pragma unroll
  for (unsigned j = 0; j < kTiles; ++j) {
    const std::uint32_t channel = (group * kTiles + j) * kChannelsOfUnit + lane % 4 * 2;
    const bool exists = channel < p.outputs;
    const bool both = channel + 1 < p.outputs;
    const float bias0 = r.bias == nullptr || !exists ? 0.0F : r.bias[channel];
    const float bias1 = r.bias == nullptr || !both ? 0.0F : r.bias[channel + 1];
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t m = first + lane / 4 + 8 * half;
      const float value0 = sums[j][2 * half] + bias0;
      const float value1 = sums[j][2 * half + 1] + bias1;
      const float mean0 = 0.25F * over_window(relu(value0));
      const float mean1 = 0.25F * over_window(relu(value1));
      std::uint32_t open = relu_gradient(value0, 1.0F) != 0.0F ? 1U << position : 0U;
      open |= relu_gradient(value1, 1.0F) != 0.0F ? 256U << position : 0U;
      open |= __shfl_xor_sync(0xFFFFFFFFU, open, 4U);
      open |= __shfl_xor_sync(0xFFFFFFFFU, open, 8U);
      if (!exists || m >= pixels) continue;
      const std::size_t window = band / 4 + m / 4;
      if (position == half) put_pair(y, window, channel, p.outputs, mean0, mean1);
      if (position == half + 2 && r.open != nullptr) {
        std::uint8_t* place = r.open + window * p.outputs + channel;
        place[0] = static_cast<std::uint8_t>(open);
        if (both) place[1] = static_cast<std::uint8_t>(open >> 8U);
      }
    }
  }
}

// The operands of a warp in one step.
template <unsigned kTiles>
struct Factors {
  Matrices a;
  uint2 b[kTiles];
};

// Factors of a step, or of the last one if there are fewer.
template <unsigned kTiles>
__device__ inline Factors<kTiles> load_factors(const Unit* row, const std::uint16_t* places, const uint2* weights,
                                               std::uint32_t step, std::uint32_t steps) {
  step = step < steps ? step : steps - 1;
  Factors<kTiles> factors;
  for (unsigned j = 0; j < kTiles; ++j) factors.b[j] = weights[(step * kTiles + j) * 32];
  factors.a = load_matrices(row + places[2 * step + threadIdx.x % 32 / kRowsOfTile]);
  return factors;
}

// Multiplies the pixels whose first units are at `row`.
template <class T, unsigned kTiles>
__device__ inline void multiply_steps(const Product& p, const Unit* row, const std::uint16_t* places,
                                      const uint2* weights, float (&sums)[kTiles][4]) {
  // The factors of the next steps are loaded meanwhile, as far as registers hold them.
  constexpr unsigned kAhead = kTiles < (sizeof(T) == sizeof(float) ? 4 : Fragments::kMostTiles) ? 2 : 1;
  Factors<kTiles> ring[kAhead];
  for (unsigned k = 0; k < kAhead; ++k) ring[k] = load_factors<kTiles>(row, places, weights, k, p.steps);
#pragma unroll 1
  for (std::uint32_t step = 0; step < p.steps; step += kAhead) {
    for (unsigned k = 0; k < kAhead; ++k) {
      const Factors<kTiles> now = ring[k];
      ring[k] = load_factors<kTiles>(row, places, weights, step + k + kAhead, p.steps);
      if (step + k >= p.steps) continue;
      for (unsigned j = 0; j < kTiles; ++j) add_product<T>(sums[j], now.a, now.b[j].x, now.b[j].y);
    }
  }
}

// The places of the units of a product, and zeros in the tile: what does not depend on earlier kernels.
__device__ inline void prepare_band(const Product& p, Unit (&tile)[kTileUnits], std::uint16_t (&places)[kMostPlaces]) {
#pragma unroll 1
  for (std::uint32_t q = threadIdx.x; q < 2 * p.steps; q += blockDim.x) {
    places[q] = static_cast<std::uint16_t>(q < p.taps.count ? p.taps.place(q) : 0);
  }
  if (p.grid.cleared) zero_tile(tile, p.tile_units());
  __syncthreads();
}

// What one block computes after prepare_band(): a band of a sample, for a group of output channels. kData: of the gradient of
// the input, otherwise forward.
template <class T, unsigned kTiles, bool kData>
__device__ inline void multiply_band(const Product& p, const Result& r, std::uint32_t band_index, std::uint32_t group,
                                     Unit (&tile)[kTileUnits], const std::uint16_t (&places)[kMostPlaces]) {
  const unsigned lane = threadIdx.x % 32;
  const std::uint32_t sample = p.bands.quotient(band_index);
  const std::uint32_t first_line = p.bands.remainder(band_index, sample) * p.lines;
  if (first_line >= p.height) return;
  const std::uint32_t lines = p.height - first_line < p.lines ? p.height - first_line : p.lines;
  const std::int32_t first = static_cast<std::int32_t>(first_line * p.stride) - p.pad_top;
  fill_tile<T, kData>(p.source, p.grid, {sample, first, p.tile_lines, 0}, tile);
  wait_for_copies();
  __syncthreads();

  const bool pool = !kData && r.pool;
  const std::uint32_t pixels = lines * p.width;
  const uint2* weights = r.weights + static_cast<std::size_t>(group) * p.steps * kTiles * 32 + lane;
  const std::size_t band = static_cast<std::size_t>(sample * p.height + first_line) * p.width;
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x / 32 * kRowsOfTile; i < pixels; i += blockDim.x / 32 * kRowsOfTile) {
    const std::uint32_t m = i + lane % kRowsOfTile;
    const Pixel pixel = pixel_of(m < pixels ? m : 0, p.across, pool);
    const Unit* row = tile + (pixel.line * p.taps.tile_width + pixel.column) * p.stride * p.taps.pitch;
    converge();
    float sums[kTiles][4] = {};
    each_product<T>(p.source.parts, [&](std::uint32_t of_pixels, std::uint32_t of_weights) {
      multiply_steps<T>(p, row + of_pixels * p.grid.part_units, places,
                        weights + of_weights * p.groups * p.steps * kTiles * 32, sums);
    });
    if (pool) {
      write_windows<T>(p, r, group, sums, i, pixels, band);
    } else {
      write_pixels<T>(p, r, group, sums, i, pixels, band);
    }
  }
}

}  // namespace ddp::cuda
