// Shared by the kernels of conv_mma.h: tiles of an image in shared memory. See Note [Tiles of units]. Units and pairs of
// channels are those of linear_mma.h too.
//
//   fill_tile<4>(source, window, tile);
//   __syncthreads();
//   const Matrices a = load_matrices(tile + place_of_pixel + places[unit]);
#pragma once

#include <cstdint>

#include "backend/arithmetic.h"
#include "backend/cuda/vector.cuh"
#include "backend/cuda/warp_matrix.cuh"

namespace ddp::cuda {

// The shared memory of a block: units of its tiles, and offsets of the units of a product's depth.
inline constexpr unsigned kTileUnits = 2816;
inline constexpr unsigned kMostPlaces = 1024;
inline constexpr unsigned kChannelsOfUnit = 8;
inline constexpr unsigned kMostChannelsOfPixels = 4;  // of images whose pixels a thread reads as a whole

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

// The part of a sample in a tile; pixels outside the image are zero.
struct TileWindow {
  std::uint32_t sample;
  std::int32_t first_line, first_column;
  std::uint32_t lines, columns;
  std::uint32_t first_channel, channels;
  std::uint32_t pitch;  // units from pixel to pixel
};

// What is read for some channels of a pixel. Loading and computing are apart, so that several loads can be in flight.
template <unsigned kWidth>
struct TileValues {
  using Values = Pack<__nv_bfloat16, kWidth>;
  Values values;
  union {
    Values y;                         // relu
    Pack<std::uint8_t, kWidth> open;  // relu_and_pool
  };
  std::uint32_t position;  // of the pixel in its window of pooling; kOutside: outside of the image
  static constexpr std::uint32_t kOutside = 31;

  __device__ TileValues() {}

  // Outside of the image the first pixel is read in place of none: a branch would wait for its load.
  __device__ void load(const TileSource& s, std::uint32_t sample, std::int32_t line, std::int32_t column,
                       std::uint32_t channel) {
    const bool inside = static_cast<std::uint32_t>(line) < s.height && static_cast<std::uint32_t>(column) < s.width;
    const std::uint32_t row = inside ? static_cast<std::uint32_t>(line) : 0;
    const std::uint32_t pixel = inside ? static_cast<std::uint32_t>(column) : 0;
    position = inside ? row % 2 * 2 + pixel % 2 : kOutside;
    if (s.kind == TileSource::Kind::relu_and_pool) {
      const std::uint32_t pooled = (sample * (s.height / 2) + row / 2) * (s.width / 2) + pixel / 2;
      const std::uint32_t i = pooled * s.channels + channel;
      values = get_pack<kWidth>(s.values, i);
      open = get_pack<kWidth>(s.open, i);
      return;
    }
    const std::uint32_t i = ((sample * s.height + row) * s.width + pixel) * s.channels + channel;
    values = get_pack<kWidth>(s.values, i);
    if (s.kind == TileSource::Kind::relu) y = get_pack<kWidth>(s.y, i);
  }

  __device__ Values result(const TileSource& s) const {
    Values pack = values;
    for (unsigned j = 0; j < kWidth; ++j) {
      if (s.kind == TileSource::Kind::relu) {
        put(pack.values, j, relu_gradient(get(y.values, j), get(values.values, j)));
      } else if (s.kind == TileSource::Kind::relu_and_pool) {
        put(pack.values, j, (open.values[j] >> position & 1U) != 0 ? 0.25F * get(values.values, j) : 0.0F);
      }
      if (position == kOutside) put(pack.values, j, 0.0F);
    }
    return pack;
  }
};

// A place of a window, for threads that step over places without dividing.
struct TilePlace {
  std::uint32_t index, line, column;

  __device__ TilePlace(std::uint32_t place, std::uint32_t columns)
      : index(place), line(place / columns), column(place % columns) {}
  __device__ void advance(const TilePlace& step, std::uint32_t columns) {
    index += step.index;
    line += step.line;
    column += step.column;
    if (column < columns) return;
    column -= columns;
    ++line;
  }
};

// Unused channels of a pixel's last unit are not written; zero_tile() clears them. Each thread keeps its channels and steps
// over the places, with several loads in flight.
template <unsigned kWidth, unsigned kAtOnce>
__device__ inline void fill_tile_by(const TileSource& s, const TileWindow& w, Unit* tile) {
  const std::uint32_t packs = w.channels / kWidth;
  const std::uint32_t across = packs < blockDim.x ? packs : blockDim.x;
  const TilePlace step(blockDim.x / across, w.columns);
  const std::uint32_t first = threadIdx.x / across;
  if (first >= step.index) return;
  const std::uint32_t count = w.lines * w.columns;
  for (std::uint32_t pack = threadIdx.x % across; pack < packs; pack += across) {
    const std::uint32_t channel = pack * kWidth;
    TilePlace at(first, w.columns);
    while (count > at.index) {
      TileValues<kWidth> loaded[kAtOnce];
      const std::uint32_t begin = at.index;
      for (unsigned k = 0; k < kAtOnce; ++k) {
        loaded[k].load(s, w.sample, w.first_line + static_cast<std::int32_t>(at.line),
                       w.first_column + static_cast<std::int32_t>(at.column), w.first_channel + channel);
        at.advance(step, w.columns);
      }
      for (unsigned k = 0; k < kAtOnce; ++k) {
        const std::uint32_t place = begin + k * step.index;
        if (place >= count) break;
        __nv_bfloat16* target = tile[place * w.pitch].values + channel;
        *reinterpret_cast<Pack<__nv_bfloat16, kWidth>*>(target) = loaded[k].result(s);
      }
    }
  }
}

// An image of few channels: a thread writes whole pixels, including the channels that do not exist.
template <unsigned kAtOnce>
__device__ inline void fill_pixels(const TileSource& s, const TileWindow& w, Unit* tile) {
  const TilePlace step(blockDim.x, w.columns);
  const std::uint32_t count = w.lines * w.columns;
  TilePlace at(threadIdx.x, w.columns);
  while (count > at.index) {
    TileValues<1> loaded[kAtOnce][kMostChannelsOfPixels];
    const std::uint32_t begin = at.index;
    for (unsigned k = 0; k < kAtOnce; ++k) {
      for (unsigned c = 0; c < kMostChannelsOfPixels; ++c) {
        loaded[k][c].load(s, w.sample, w.first_line + static_cast<std::int32_t>(at.line),
                          w.first_column + static_cast<std::int32_t>(at.column), c < s.channels ? c : 0);
      }
      at.advance(step, w.columns);
    }
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const std::uint32_t place = begin + k * step.index;
      if (place >= count) break;
      Unit unit;
      for (unsigned c = 0; c < kChannelsOfUnit; ++c) {
        put(unit.values, c, 0.0F);
        if (c < kMostChannelsOfPixels && c < s.channels) unit.values[c] = loaded[k][c].result(s).values[0];
      }
      tile[place * w.pitch] = unit;
    }
  }
}

// kAtOnce: loads in flight, as many as registers hold.
template <unsigned kAtOnce>
__device__ inline void fill_tile(const TileSource& s, const TileWindow& w, Unit* tile) {
  constexpr unsigned kOfWholeUnits = kAtOnce < 2 ? 1 : kAtOnce / 2;
  if (s.kind == TileSource::Kind::values && s.channels <= kMostChannelsOfPixels) {
    return fill_pixels<kOfWholeUnits>(s, w, tile);
  }
  if (s.channels % 8 == 0) {
    fill_tile_by<8, kOfWholeUnits>(s, w, tile);
  } else if (s.channels % 4 == 0) {
    fill_tile_by<4, kAtOnce>(s, w, tile);
  } else if (s.channels % 2 == 0) {
    fill_tile_by<2, kAtOnce>(s, w, tile);
  } else {
    fill_tile_by<1, kAtOnce>(s, w, tile);
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
