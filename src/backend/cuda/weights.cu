// Reorders and converts a convolution's weights [K][C][taps] through shared memory, so that both sides are accessed
// contiguously.
#include <algorithm>

#include "backend/cuda/kernels.h"
#include "backend/cuda/vector.cuh"

namespace ddp::cuda {
namespace {

// Weights of a tile: some channels of one output channel, with all taps. A convolution with more taps than this is
// copied tap by tap.
constexpr std::uint32_t kTileWeights = 4608;

struct Tiles {
  std::uint32_t channels, taps;
  std::uint32_t tile_channels;
  std::uint32_t tiles;  // of an output channel
};

// The tile of this block.
struct Tile {
  std::uint32_t channels, taps;
  std::size_t plain;   // its offset in [K][C][taps], where it is contiguous
  std::size_t packed;  // the offset of its first tap in [K][taps][C]; the others follow with stride `step`
  std::uint32_t step;

  __device__ explicit Tile(const Tiles& t) : taps(t.taps), step(t.channels) {
    const std::uint32_t output = blockIdx.x / t.tiles;
    const std::uint32_t first = blockIdx.x % t.tiles * t.tile_channels;
    channels = t.channels - first < t.tile_channels ? t.channels - first : t.tile_channels;
    plain = (static_cast<std::size_t>(output) * t.channels + first) * taps;
    packed = static_cast<std::size_t>(output) * t.channels * taps + first;
  }
};

// Calls use(i, load(i)) for the thread's share of 0 to count - 1, with several loads in flight.
template <class Load, class Use>
__device__ inline void each_of_block(std::uint32_t count, Load load, Use use) {
  constexpr unsigned kAtOnce = 6;
  for (std::uint32_t first = threadIdx.x; first < count; first += kAtOnce * kThreads) {
    decltype(load(first)) loaded[kAtOnce];
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if (first + k * kThreads < count) loaded[k] = load(first + k * kThreads);
    }
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if (first + k * kThreads < count) use(first + k * kThreads, loaded[k]);
    }
  }
}

// kWidth channels at once on the packed side: 1, or 2 if their number is even.
template <unsigned kWidth, class T>
__global__ void __launch_bounds__(kThreads) pack_kernel(const Tiles tiles, const float* weights, T* packed) {
  __shared__ float values[kTileWeights];
  const Tile tile(tiles);
  each_of_block(
      tile.channels * tile.taps, [&](std::uint32_t i) { return weights[tile.plain + i]; },
      [&](std::uint32_t i, float value) { values[i] = value; });
  __syncthreads();
  const std::uint32_t vectors = tile.channels / kWidth;
  for (std::uint32_t i = threadIdx.x; i < vectors * tile.taps; i += kThreads) {
    const std::uint32_t tap = i / vectors;
    const std::uint32_t channel = i % vectors * kWidth;
    float some[kWidth];
    for (unsigned j = 0; j < kWidth; ++j) some[j] = values[(channel + j) * tile.taps + tap];
    put_some(packed, tile.packed + static_cast<std::size_t>(tap) * tile.step + channel, some);
  }
}

template <unsigned kWidth, class T>
__global__ void __launch_bounds__(kThreads) unpack_kernel(const Tiles tiles, const T* packed, float* weights) {
  __shared__ float values[kTileWeights];
  const Tile tile(tiles);
  const std::uint32_t vectors = tile.channels / kWidth;
  const auto load = [&](std::uint32_t i) {
    const std::size_t tap = i / vectors;
    return get_pack<kWidth>(packed, tile.packed + tap * tile.step + i % vectors * kWidth);
  };
  each_of_block(vectors * tile.taps, load, [&](std::uint32_t i, const Pack<T, kWidth>& pack) {
    float some[kWidth];
    unpack(pack, some);
    for (unsigned j = 0; j < kWidth; ++j) values[(i % vectors * kWidth + j) * tile.taps + i / vectors] = some[j];
  });
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < tile.channels * tile.taps; i += kThreads) weights[tile.plain + i] = values[i];
}

// Calls f(tiles, blocks, std::integral_constant of kWidth).
template <class F>
void with_tiles(std::int64_t outputs, std::int64_t channels, std::int64_t taps, F f) {
  const std::int64_t fitting = kTileWeights / taps;
  const bool even = channels % 2 == 0 && fitting >= 2;
  const std::int64_t tile_channels = std::min(channels, even ? fitting / 2 * 2 : fitting);
  const std::int64_t count = (channels + tile_channels - 1) / tile_channels;
  const Tiles tiles{static_cast<std::uint32_t>(channels), static_cast<std::uint32_t>(taps),
                    static_cast<std::uint32_t>(tile_channels), static_cast<std::uint32_t>(count)};
  const auto blocks = static_cast<unsigned>(outputs * count);
  if (even) {
    f(tiles, blocks, std::integral_constant<unsigned, 2>());
  } else {
    f(tiles, blocks, std::integral_constant<unsigned, 1>());
  }
}

// Element by element, for filters with thousands of taps. Returns the offset in [K][C][taps] of the packed element
// `index`.
__device__ std::uint32_t plain_index(std::uint32_t index, std::uint32_t channels, std::uint32_t taps) {
  const std::uint32_t channel = index % channels;
  const std::uint32_t tap = index / channels % taps;
  const std::uint32_t output = index / channels / taps;
  return (output * channels + channel) * taps + tap;
}

template <class From, class To>
__global__ void move_kernel(const From* from, To* to, std::uint32_t count, std::uint32_t channels, std::uint32_t taps,
                            bool pack) {
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    const std::uint32_t plain = plain_index(static_cast<std::uint32_t>(i), channels, taps);
    put(to, pack ? i : plain, get(from, pack ? plain : i));
  }
}

}  // namespace

void pack_weights(cudaStream_t stream, const float* weights, Element element, void* packed, std::int64_t outputs,
                  std::int64_t channels, std::int64_t taps) {
  const std::int64_t count = outputs * channels * taps;
  if (channels == 1 || taps == 1) return convert(stream, Element::fp32, weights, element, packed, count);
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    if (taps > kTileWeights) {
      launch(stream, blocks_for(count), kThreads, move_kernel<float, T>, weights, as<T>(packed), count, channels, taps,
             true);
      return;
    }
    with_tiles(outputs, channels, taps, [&](const Tiles& tiles, unsigned blocks, auto width) {
      launch(stream, blocks, kThreads, pack_kernel<decltype(width)::value, T>, tiles, weights, as<T>(packed));
    });
  });
}

void unpack_weights(cudaStream_t stream, Element element, const void* packed, float* weights, std::int64_t outputs,
                    std::int64_t channels, std::int64_t taps) {
  const std::int64_t count = outputs * channels * taps;
  if (channels == 1 || taps == 1) return convert(stream, element, packed, Element::fp32, weights, count);
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    if (taps > kTileWeights) {
      launch(stream, blocks_for(count), kThreads, move_kernel<T, float>, as<T>(packed), weights, count, channels, taps,
             false);
      return;
    }
    with_tiles(outputs, channels, taps, [&](const Tiles& tiles, unsigned blocks, auto width) {
      launch(stream, blocks, kThreads, unpack_kernel<decltype(width)::value, T>, tiles, as<T>(packed), weights);
    });
  });
}

}  // namespace ddp::cuda
