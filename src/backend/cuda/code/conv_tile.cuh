// Shared by the kernels of conv_mma.h: tiles of an image in shared memory. See Note [Tiles of units]. Units and pairs of
// channels are those of linear_mma.h too.
//
//   const TileGrid grid = tile_grid(source, -pad_left, columns, channels, units, false);   // on the host
//   fill_tile<__nv_bfloat16, false>(source, grid, window, tile);
//   wait_for_copies();
//   __syncthreads();
//   const Matrices a = load_matrices(tile + place_of_pixel + places[unit]);
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "backend/arithmetic.h"
#include "backend/cuda/code/async_copy.cuh"
#include "backend/cuda/code/divisor.cuh"
#include "backend/cuda/code/vector.cuh"
#include "backend/cuda/code/warp_matrix.cuh"

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

// An image in nhwc, or a gradient before ReLU and pooling that is computed while it is read.
struct TileSource {
  enum class Kind : std::uint32_t { values, relu, relu_and_pool };
  Kind kind;
  const void* values;        // or the gradient behind
  const void* y;             // relu
  const std::uint8_t* open;  // relu_and_pool
  std::uint32_t height, width, channels;
  std::uint32_t parts;  // see Note [Parts] of parts.h; 1: bf16 in memory, otherwise fp32

  // Channels of an access.
  __host__ __device__ std::uint32_t vector() const {
    return parts == 1 && channels % 8 == 0 ? 8 : channels % 4 == 0 ? 4 : channels % 2 == 0 ? 2 : 1;
  }
};

// What the windows of a kernel's blocks have in common. A window is what a tile holds of a sample; pixels outside the image are
// zero.
struct TileGrid {
  std::int32_t first_column;
  std::uint32_t columns;
  std::uint32_t pitch;       // units from pixel to pixel
  std::uint32_t part_units;  // units from part to part
  // The tile is zero before, so that pixels outside the image need not be written.
  bool cleared;
  Divisor vectors;  // of a pixel
  Divisor across;   // columns, or with relu_and_pool windows of pooling
  std::int32_t first_across;
};

// The part that a block reads; lines and channels beyond the image's are not written.
struct TileWindow {
  std::uint32_t sample;
  std::int32_t first_line;
  std::uint32_t lines;
  std::uint32_t first_channel;
};

// Some pooling windows, from the first to before the end; negative ones are outside the image.
struct PooledRange {
  std::int32_t first, end;

  // Those that a window of `count` pixels from `begin` on touches, or of these the ones in an image of `size` pixels.
  __host__ __device__ PooledRange(std::int32_t begin, std::uint32_t count, std::uint32_t size, bool inside)
      : first(begin >> 1), end((begin + static_cast<std::int32_t>(count) + 1) >> 1) {
    const auto last = static_cast<std::int32_t>(size / 2);
    if (inside && first < 0) first = 0;
    if (inside && end > last) end = last;
  }
  __host__ __device__ std::uint32_t count() const { return end > first ? static_cast<std::uint32_t>(end - first) : 0; }
};

// `channels`: the most in a window, a multiple of source.vector(). `units`: of a part of a pixel.
inline TileGrid tile_grid(const TileSource& source, std::int32_t first_column, std::uint32_t columns,
                          std::uint32_t channels, std::uint32_t units, bool cleared) {
  TileGrid grid{first_column,
                columns,
                pitch_of(units * source.parts),
                units,
                cleared,
                Divisor(channels / source.vector()),
                Divisor(columns),
                first_column};
  if (source.kind == TileSource::Kind::relu_and_pool) {
    const PooledRange pooled(first_column, columns, source.width, cleared);
    grid.across = Divisor(pooled.count() > 0 ? pooled.count() : 1);
    grid.first_across = pooled.first;
  }
  return grid;
}

// Note [Short code]
// A block runs through most of its code once or twice, and the kernels of a step do not fit into a multiprocessor's instruction
// cache: code that is not a short loop takes longer to fetch than to execute ("Length of code" in bench/history/gpu-kernels.md). So
// loops are not unrolled, asynchronous copies keep many loads in flight, and divisors are known at the launch.

// Vector `i` of a window.
struct TileVector {
  std::uint32_t place;    // of its pixel in the tile; with relu_and_pool unused
  std::uint32_t channel;  // in the window
  std::int32_t line, column;

  __device__ TileVector(const TileGrid& g, std::int32_t first_line, std::uint32_t width, std::uint32_t i) {
    place = g.vectors.quotient(i);
    channel = g.vectors.remainder(i, place) * width;
    const std::uint32_t row = g.across.quotient(place);
    line = first_line + static_cast<std::int32_t>(row);
    column = g.first_across + static_cast<std::int32_t>(g.across.remainder(place, row));
  }
  // Whether an image of this size has it, of which the window sees `channels`.
  __device__ bool exists(std::uint32_t height, std::uint32_t width, std::uint32_t channels) const {
    return static_cast<std::uint32_t>(line) < height && static_cast<std::uint32_t>(column) < width &&
           channel < channels;
  }
  // In an image of this width and of `channels` channels.
  __device__ std::uint32_t offset(std::uint32_t width, std::uint32_t channels) const {
    return (static_cast<std::uint32_t>(line) * width + static_cast<std::uint32_t>(column)) * channels + channel;
  }
};

__device__ inline __nv_bfloat16* place_in_tile(const TileGrid& g, Unit* tile, std::uint32_t place,
                                               std::uint32_t channel) {
  return tile[place * g.pitch].values + channel;
}

// What a window reads of `values`, an image of `pixels` pixels for each sample.
template <class T>
__device__ inline const T* sample_of(const TileSource& s, const TileWindow& w, const void* values,
                                     std::uint32_t pixels) {
  return static_cast<const T*>(values) + static_cast<std::size_t>(w.sample) * pixels * s.channels + w.first_channel;
}

// Unused channels of a pixel's last unit are not written; zero_tile() clears them.
template <unsigned kWidth>
__device__ inline void copy_pixels(const TileSource& s, const TileGrid& g, const TileWindow& w, Unit* tile) {
  // Single values cannot be copied asynchronously, so some of them are loaded at once.
  constexpr unsigned kAtOnce = kWidth == 1 ? 4 : 1;
  const __nv_bfloat16* sample = sample_of<__nv_bfloat16>(s, w, s.values, s.height * s.width);
  const std::uint32_t count = w.lines * g.columns * g.vectors.number();
#pragma unroll 1
  for (std::uint32_t first = threadIdx.x; first < count; first += kAtOnce * blockDim.x) {
    __nv_bfloat16 loaded[kAtOnce];
    __nv_bfloat16* to[kAtOnce];
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const TileVector at(g, w.first_line, kWidth, first + k * blockDim.x);
      const bool exists = at.exists(s.height, s.width, s.channels - w.first_channel);
      to[k] = place_in_tile(g, tile, at.place, at.channel);
      const __nv_bfloat16* from = sample + (exists ? at.offset(s.width, s.channels) : 0);
      if constexpr (kWidth == 1) {
        loaded[k] = *from;
        if (!exists) put(loaded, k, 0.0F);
      } else {
        copy_async_if<kWidth * sizeof(__nv_bfloat16)>(exists, to[k], from);
      }
    }
    for (unsigned k = 0; kWidth == 1 && k < kAtOnce; ++k) {
      if (first + k * blockDim.x < count) *to[k] = loaded[k];
    }
  }
}

// Some adjacent values as pairs of bf16 or bytes in 32 bits; those behind the last one are zero.
template <class T, unsigned kWidth>
struct Words {
  static constexpr unsigned kCount = (kWidth * sizeof(T) + 3) / 4;
  std::uint32_t words[kCount] = {};

  __device__ Words(const T* values, std::size_t i) {
    const Pack<T, kWidth> pack = get_pack<kWidth>(values, i);
    std::memcpy(words, &pack, sizeof(pack));
  }
  __device__ void put(T* to) const {
    Pack<T, kWidth> pack;
    std::memcpy(&pack, words, sizeof(pack));
    *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
  }
};

__device__ inline __nv_bfloat162 pair_of(std::uint32_t word) {
  __nv_bfloat162 pair;
  std::memcpy(&pair, &word, sizeof(pair));
  return pair;
}
__device__ inline std::uint32_t word_of(const __nv_bfloat162& pair) {
  std::uint32_t word = 0;
  std::memcpy(&word, &pair, sizeof(word));
  return word;
}
// relu_gradient() of a pair.
__device__ inline std::uint32_t relu_gradients(std::uint32_t y, std::uint32_t dy) {
  return dy & ~__hle2_mask(pair_of(y), pair_of(0));
}
// A pair where bit 0 of the lower two bytes of `open` is set, otherwise zero.
__device__ inline std::uint32_t pass(std::uint32_t open, std::uint32_t pair) {
  return pair & ((open & 1U) * 0xFFFFU | (open >> 8U & 1U) * 0xFFFF0000U);
}

template <unsigned kWidth>
__device__ inline void fill_pixels(const TileSource& s, const TileGrid& g, const TileWindow& w, Unit* tile) {
  const __nv_bfloat16* values = sample_of<__nv_bfloat16>(s, w, s.values, s.height * s.width);
  const __nv_bfloat16* y = sample_of<__nv_bfloat16>(s, w, s.y, s.height * s.width);
  const std::uint32_t count = w.lines * g.columns * g.vectors.number();
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    const TileVector at(g, w.first_line, kWidth, i);
    const bool exists = at.exists(s.height, s.width, s.channels - w.first_channel);
    const std::uint32_t offset = exists ? at.offset(s.width, s.channels) : 0;
    Words<__nv_bfloat16, kWidth> result(values, offset);
    const Words<__nv_bfloat16, kWidth> passed(y, offset);
    for (unsigned j = 0; j < result.kCount; ++j) {
      result.words[j] = exists ? relu_gradients(passed.words[j], result.words[j]) : 0;
    }
    result.put(place_in_tile(g, tile, at.place, at.channel));
  }
}

// Calls use(position, place in the tile) for the pixels of a pooling window that the tile has, of its four.
template <class Use>
__device__ inline void each_pixel_of(const TileVector& window, const TileGrid& g, const TileWindow& w, Use use) {
#pragma unroll 1
  for (unsigned position = 0; position < 4; ++position) {
    const auto line = static_cast<std::uint32_t>(2 * window.line - w.first_line) + position / 2;
    const auto column = static_cast<std::uint32_t>(2 * window.column - g.first_column) + position % 2;
    if (line < w.lines && column < g.columns) use(position, line * g.columns + column);
  }
}

// The same for relu_and_pool: each value of the pooled gradient is read once, for the four pixels of its window.
template <unsigned kWidth>
__device__ inline void fill_windows(const TileSource& s, const TileGrid& g, const TileWindow& w, Unit* tile) {
  const std::uint32_t height = s.height / 2;
  const std::uint32_t width = s.width / 2;
  const __nv_bfloat16* values = sample_of<__nv_bfloat16>(s, w, s.values, height * width);
  const std::uint8_t* opens = sample_of<std::uint8_t>(s, w, s.open, height * width);
  const PooledRange lines(w.first_line, w.lines, s.height, g.cleared);
  const std::uint32_t count = lines.count() * g.across.number() * g.vectors.number();
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    const TileVector at(g, lines.first, kWidth, i);
    const bool exists = at.exists(height, width, s.channels - w.first_channel);
    const std::uint32_t offset = exists ? at.offset(width, s.channels) : 0;
    Words<__nv_bfloat16, kWidth> quarters(values, offset);
    const Words<std::uint8_t, kWidth> open(opens, offset);
    for (unsigned j = 0; j < quarters.kCount; ++j) {
      quarters.words[j] = exists ? word_of(__hmul2(pair_of(quarters.words[j]), __float2bfloat162_rn(0.25F))) : 0;
    }
    each_pixel_of(at, g, w, [&](unsigned position, std::uint32_t place) {
      Words<__nv_bfloat16, kWidth> passed = quarters;
      for (unsigned j = 0; j < passed.kCount; ++j) {
        passed.words[j] = pass(open.words[j / 2] >> (j % 2 * 16 + position), passed.words[j]);
      }
      passed.put(place_in_tile(g, tile, place, at.channel));
    });
  }
}

// The parts of adjacent channels of a pixel.
template <unsigned kWidth>
__device__ inline void put_parts(const TileSource& s, const TileGrid& g, Unit* tile, std::uint32_t place,
                                 std::uint32_t channel, float (&values)[kWidth]) {
#pragma unroll 1
  for (std::uint32_t part = 0; part < s.parts; ++part) {
    Pack<__nv_bfloat16, kWidth> pack;
    for (unsigned j = 0; j < kWidth; ++j) {
      put(pack.values, j, values[j]);
      values[j] -= get(pack.values, j);
    }
    __nv_bfloat16* to = place_in_tile(g, tile + part * g.part_units, place, channel);
    *reinterpret_cast<Pack<__nv_bfloat16, kWidth>*>(to) = pack;
  }
}

// Fills parts of fp32, of every kind.
template <unsigned kWidth>
__device__ inline void fill_parts(const TileSource& s, const TileGrid& g, const TileWindow& w, Unit* tile) {
  const bool pooled = s.kind == TileSource::Kind::relu_and_pool;
  const std::uint32_t height = pooled ? s.height / 2 : s.height;
  const std::uint32_t width = pooled ? s.width / 2 : s.width;
  const auto* values = sample_of<float>(s, w, s.values, height * width);
  const auto* y = sample_of<float>(s, w, s.y, height * width);
  const auto* opens = sample_of<std::uint8_t>(s, w, s.open, height * width);
  const PooledRange windows(w.first_line, w.lines, s.height, g.cleared);
  const std::int32_t first_line = pooled ? windows.first : w.first_line;
  const std::uint32_t count = (pooled ? windows.count() : w.lines) * g.across.number() * g.vectors.number();
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    const TileVector at(g, first_line, kWidth, i);
    const bool exists = at.exists(height, width, s.channels - w.first_channel);
    const std::uint32_t offset = exists ? at.offset(width, s.channels) : 0;
    float some[kWidth];
    get_some(values, offset, some);
    if (s.kind == TileSource::Kind::relu) {
      float passed[kWidth];
      get_some(y, offset, passed);
      for (unsigned j = 0; j < kWidth; ++j) some[j] = relu_gradient(passed[j], some[j]);
    }
    for (unsigned j = 0; j < kWidth; ++j) some[j] = exists ? some[j] : 0.0F;
    if (!pooled) {
      put_parts(s, g, tile, at.place, at.channel, some);
      continue;
    }
    const Pack<std::uint8_t, kWidth> open = get_pack<kWidth>(opens, offset);
    each_pixel_of(at, g, w, [&](unsigned position, std::uint32_t place) {
      float passed[kWidth];
      for (unsigned j = 0; j < kWidth; ++j) passed[j] = (open.values[j] >> position & 1U) != 0 ? 0.25F * some[j] : 0.0F;
      put_parts(s, g, tile, place, at.channel, passed);
    });
  }
}

template <class F>
__device__ inline void with_vector(std::uint32_t width, F f) {
  if (width == 8) {
    f(std::integral_constant<unsigned, 8>{});
  } else if (width == 4) {
    f(std::integral_constant<unsigned, 4>{});
  } else if (width == 2) {
    f(std::integral_constant<unsigned, 2>{});
  } else {
    f(std::integral_constant<unsigned, 1>{});
  }
}

// T: in memory. kGradient: otherwise the source is of `values`. Behind this function a thread waits for its copies
// (wait_for_copies()), and the block for all threads.
template <class T, bool kGradient>
__device__ inline void fill_tile(const TileSource& s, const TileGrid& g, const TileWindow& w, Unit* tile) {
  with_vector(s.vector(), [&](auto width) {
    constexpr unsigned kWidth = decltype(width)::value;
    if constexpr (sizeof(T) == sizeof(float)) {
      if constexpr (kWidth <= kVector<float>) fill_parts<kWidth>(s, g, w, tile);
    } else if (!kGradient || s.kind == TileSource::Kind::values) {
      copy_pixels<kWidth>(s, g, w, tile);
    } else if (s.kind == TileSource::Kind::relu) {
      fill_pixels<kWidth>(s, g, w, tile);
    } else {
      fill_windows<kWidth>(s, g, w, tile);
    }
  });
}

// Calls f(part of the first factor, part of the second) for the products of parts that are not negligible, the smallest ones
// first.
template <class T, class F>
__device__ inline void each_product(std::uint32_t parts, F f) {
  if constexpr (sizeof(T) == sizeof(float)) {
#pragma unroll 1
    for (std::uint32_t both = parts; both-- > 0;) {
#pragma unroll 1
      for (std::uint32_t first = 0; first <= both; ++first) f(first, both - first);
    }
  } else {
    f(0U, 0U);
  }
}

// Adds the product of parts of factors, T in memory. Tensor cores truncate what they add to a sum, an error that would grow with the
// number of steps; for fp32 products are therefore added outside of them (Ootomo and Yokota, "Recovering single precision accuracy from
// Tensor Cores while surpassing the FP32 theoretical peak performance", 2022).
template <class T>
__device__ inline void add_product(float (&sums)[4], const Matrices& a, std::uint32_t b0, std::uint32_t b1) {
  if constexpr (sizeof(T) == sizeof(float)) {
    float product[4] = {};
    multiply_add(product, a, b0, b1);
    for (unsigned i = 0; i < 4; ++i) sums[i] += product[i];
  } else {
    multiply_add(sums, a, b0, b1);
  }
}

__device__ inline void zero_tile(Unit* tile, std::uint32_t units) {
  auto* words = reinterpret_cast<uint4*>(tile);
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; i < units; i += blockDim.x) words[i] = {0, 0, 0, 0};
}

// Two adjacent channels; the second one may be beyond the last.
template <class T>
__device__ inline void put_pair(T* y, std::size_t pixel, std::uint32_t channel, std::uint32_t channels, float first,
                                float second) {
  const std::size_t i = pixel * channels + channel;
  if (channels % 2 == 0) {
    const float pair[2] = {first, second};
    put_some(y, i, pair);
  } else {
    put(y, i, first);
    if (channel + 1 < channels) put(y, i + 1, second);
  }
}

// The offset of unit q of a product's depth from a pixel.
struct Taps {
  Divisor units;                    // of a pixel
  Divisor columns;                  // taps in a line of the kernel
  std::uint32_t count;              // units of all taps
  std::uint32_t pitch, tile_width;  // as in TileGrid

  __device__ std::uint32_t place(std::uint32_t q) const {
    const std::uint32_t tap = units.quotient(q);
    const std::uint32_t line = columns.quotient(tap);
    return (line * tile_width + columns.remainder(tap, line)) * pitch + units.remainder(q, tap);
  }
};

}  // namespace ddp::cuda
