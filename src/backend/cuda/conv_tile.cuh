// Shared by the kernels of conv_mma.h: tiles of an image in shared memory. See Note [Tiles of units]. Units and pairs of
// channels are those of linear_mma.h too.
//
//   fill_tile(source, window, tile);
//   __syncthreads();
//   const Matrices a = load_matrices(tile + place_of_pixel + places[unit]);
#pragma once

#include <cstdint>

#include "backend/arithmetic.h"
#include "backend/cuda/vector.cuh"
#include "backend/cuda/warp_matrix.cuh"

namespace ddp::cuda {

// The shared memory of a block: units of its tiles, and offsets of the units of a product's depth.
inline constexpr unsigned kTileUnits = 2560;
inline constexpr unsigned kMostPlaces = 1024;
inline constexpr unsigned kChannelsOfUnit = 8;

constexpr std::uint32_t units_of(std::int64_t channels) {
  return static_cast<std::uint32_t>((channels + kChannelsOfUnit - 1) / kChannelsOfUnit);
}
// An odd distance between pixels, so that 8 neighbours are in different banks.
constexpr std::uint32_t pitch_of(std::uint32_t units) { return units | 1U; }

// An image of bf16 in nhwc, or a gradient before ReLU and pooling that is computed while it is read.
struct TileSource {
  enum class Kind : std::uint32_t { values, relu, relu_and_pool };
  Kind kind;
  const __nv_bfloat16* values;  // or the gradient behind
  const __nv_bfloat16* y;       // relu
  const std::uint8_t* open;     // relu_and_pool
  std::uint32_t height, width, channels;
};

// The part of a sample in a tile; pixels outside the image are zero. `cleared`: they are already.
struct TileWindow {
  std::uint32_t sample;
  std::int32_t first_line, first_column;
  std::uint32_t lines, columns;
  std::uint32_t first_channel, channels;
  std::uint32_t pitch;  // units from pixel to pixel
  bool cleared;
};

// Not of relu_and_pool.
template <unsigned kWidth>
__device__ inline Pack<__nv_bfloat16, kWidth> tile_pack(const TileSource& s, std::uint32_t sample, std::uint32_t line,
                                                        std::uint32_t column, std::uint32_t channel) {
  using Values = Pack<__nv_bfloat16, kWidth>;
  const std::size_t i = (static_cast<std::size_t>(sample * s.height + line) * s.width + column) * s.channels + channel;
  Values pack = get_pack<kWidth>(s.values, i);
  if (s.kind == TileSource::Kind::values) return pack;
  const Values y = get_pack<kWidth>(s.y, i);
  for (unsigned j = 0; j < kWidth; ++j) put(pack.values, j, relu_gradient(get(y.values, j), get(pack.values, j)));
  return pack;
}

template <unsigned kWidth>
__device__ inline void put_in_tile(const TileWindow& w, Unit* tile, std::uint32_t place, std::uint32_t channel,
                                   const Pack<__nv_bfloat16, kWidth>& pack) {
  *reinterpret_cast<Pack<__nv_bfloat16, kWidth>*>(tile[place * w.pitch].values + channel) = pack;
}

// Unused channels of a pixel's last unit are not written; zero_tile() clears them.
template <unsigned kWidth>
__device__ inline void fill_tile_by(const TileSource& s, const TileWindow& w, Unit* tile) {
  const std::uint32_t packs = w.channels / kWidth;
  const std::uint32_t count = w.lines * w.columns * packs;
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    const std::uint32_t channel = i % packs * kWidth;
    const std::uint32_t place = i / packs;
    const std::int32_t line = w.first_line + static_cast<std::int32_t>(place / w.columns);
    const std::int32_t column = w.first_column + static_cast<std::int32_t>(place % w.columns);
    Pack<__nv_bfloat16, kWidth> pack;
    if (line >= 0 && line < static_cast<std::int32_t>(s.height) && column >= 0 &&
        column < static_cast<std::int32_t>(s.width)) {
      pack = tile_pack<kWidth>(s, w.sample, line, column, w.first_channel + channel);
    } else {
      for (unsigned j = 0; j < kWidth; ++j) put(pack.values, j, 0.0F);
    }
    put_in_tile(w, tile, place, channel, pack);
  }
}

// Some pooling windows, from the first to before the end; negative ones are outside the image.
struct PooledRange {
  std::int32_t first, end;

  // Those that a window of `count` pixels from `begin` on touches, or of these the ones in an image of `size` pixels.
  __device__ PooledRange(std::int32_t begin, std::uint32_t count, std::uint32_t size, bool inside)
      : first(begin >> 1), end((begin + static_cast<std::int32_t>(count) + 1) >> 1) {
    const auto last = static_cast<std::int32_t>(size / 2);
    if (inside && first < 0) first = 0;
    if (inside && end > last) end = last;
  }
  __device__ std::uint32_t count() const { return end > first ? static_cast<std::uint32_t>(end - first) : 0; }
};

// The same for relu_and_pool: each value of the pooled gradient is read once, for the four pixels of its window.
template <unsigned kWidth>
__device__ inline void fill_windows_by(const TileSource& s, const TileWindow& w, Unit* tile) {
  using Values = Pack<__nv_bfloat16, kWidth>;
  const PooledRange lines(w.first_line, w.lines, s.height, w.cleared);
  const PooledRange columns(w.first_column, w.columns, s.width, w.cleared);
  const std::uint32_t packs = w.channels / kWidth;
  const std::uint32_t count = lines.count() * columns.count() * packs;
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    const std::uint32_t channel = i % packs * kWidth;
    const std::int32_t line = lines.first + static_cast<std::int32_t>(i / packs / columns.count());
    const std::int32_t column = columns.first + static_cast<std::int32_t>(i / packs % columns.count());
    const bool exists = line >= 0 && line < static_cast<std::int32_t>(s.height / 2) && column >= 0 &&
                        column < static_cast<std::int32_t>(s.width / 2);
    const std::size_t pooled =
        static_cast<std::size_t>(w.sample * (s.height / 2) + static_cast<std::uint32_t>(line)) * (s.width / 2) +
        static_cast<std::uint32_t>(column);
    const std::size_t place = exists ? pooled * s.channels + w.first_channel + channel : 0;
    const Values values = get_pack<kWidth>(s.values, place);
    const Pack<std::uint8_t, kWidth> open = get_pack<kWidth>(s.open, place);
    for (unsigned position = 0; position < 4; ++position) {
      const std::int32_t tile_line = 2 * line + static_cast<std::int32_t>(position / 2) - w.first_line;
      const std::int32_t tile_column = 2 * column + static_cast<std::int32_t>(position % 2) - w.first_column;
      if (tile_line < 0 || tile_line >= static_cast<std::int32_t>(w.lines) || tile_column < 0 ||
          tile_column >= static_cast<std::int32_t>(w.columns))
        continue;
      Values pack;
      for (unsigned j = 0; j < kWidth; ++j) {
        const bool passes = exists && (open.values[j] >> position & 1U) != 0;
        put(pack.values, j, passes ? 0.25F * get(values.values, j) : 0.0F);
      }
      put_in_tile(w, tile, static_cast<std::uint32_t>(tile_line) * w.columns + static_cast<std::uint32_t>(tile_column),
                  channel, pack);
    }
  }
}

template <unsigned kWidth>
__device__ inline void fill_either_by(const TileSource& s, const TileWindow& w, Unit* tile) {
  if (s.kind == TileSource::Kind::relu_and_pool) {
    fill_windows_by<kWidth>(s, w, tile);
  } else {
    fill_tile_by<kWidth>(s, w, tile);
  }
}

__device__ inline void fill_tile(const TileSource& s, const TileWindow& w, Unit* tile) {
  if (s.channels % 8 == 0) {
    fill_either_by<8>(s, w, tile);
  } else if (s.channels % 4 == 0) {
    fill_either_by<4>(s, w, tile);
  } else if (s.channels % 2 == 0) {
    fill_either_by<2>(s, w, tile);
  } else {
    fill_either_by<1>(s, w, tile);
  }
}

__device__ inline void zero_tile(Unit* tile, std::uint32_t units) {
  for (std::uint32_t i = threadIdx.x; i < units; i += blockDim.x) {
    for (unsigned j = 0; j < kChannelsOfUnit; ++j) put(tile[i].values, j, 0.0F);
  }
}

// Two adjacent channels; the second one may be beyond the last.
__device__ inline void put_pair(__nv_bfloat16* y, std::size_t pixel, std::uint32_t channel, std::uint32_t channels,
                                float first, float second) {
  const std::size_t i = pixel * channels + channel;
  if (channels % 2 == 0) {
    put_some<2>(y, i, {first, second});
  } else {
    put(y, i, first);
    if (channel + 1 < channels) put(y, i + 1, second);
  }
}

// The offset of unit q of a product's depth from a pixel.
struct Taps {
  std::uint32_t units;    // of a pixel
  std::uint32_t columns;  // taps in a line of the kernel
  std::uint32_t count;    // units of all taps
  std::uint32_t pitch, tile_width;

  __device__ std::uint32_t place(std::uint32_t q) const {
    const std::uint32_t tap = q / units;
    return (tap / columns * tile_width + tap % columns) * pitch + q % units;
  }
};

}  // namespace ddp::cuda
