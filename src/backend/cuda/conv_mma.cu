// Forward and data gradient; see conv_mma.h. Each warp computes 16 pixels of kTiles times 8 channels at a time. With
// pooling the four pixels of a window are adjacent among these 16, so the values to average are in lanes of one warp.
#include <algorithm>

#include "backend/cuda/conv_mma.h"
#include "backend/cuda/conv_tile.cuh"

namespace ddp::cuda {
namespace {

// With more channels cuDNN's kernels are faster.
constexpr std::int64_t kMostInputs = 64;
constexpr std::int64_t kMostOutputs = 128;
constexpr unsigned kMostWarps = 12;
constexpr unsigned kRowsOfTile = 16;
constexpr unsigned kWholeWarp = 0xFFFFFFFFU;
// The maximum number of tiles of 8 output channels per warp; more are distributed over several blocks.
constexpr std::uint32_t kMostTiles = 8;

// Kernel parameters of a product; the result has `height` x `width` pixels of `outputs` channels before pooling.
struct Product {
  TileSource source;
  Taps taps;
  std::uint32_t samples;
  std::uint32_t height, width, outputs;
  std::uint32_t stride;
  std::int32_t pad_top, pad_left;
  std::uint32_t steps;
  std::uint32_t bands, lines;   // a block computes this many lines of the result
  std::uint32_t tile_lines;     // ... and reads this many
  std::uint32_t groups, tiles;  // of output channels
};

struct Result {
  const uint2* weights;
  const float* bias;
  __nv_bfloat16* y;
  std::uint8_t* open;
  bool relu, pool;
  bool add;  // to what y holds; not with pooling
};

std::uint32_t tiles_at_once(std::uint32_t outputs) {
  const std::uint32_t tiles = units_of(outputs);
  for (const std::uint32_t some : {1U, 3U, 4U, 7U}) {
    if (tiles <= some) return some;
  }
  return kMostTiles;
}

// The lines per block; 0 if not even one fits.
std::uint32_t lines_that_fit(const Product& p, std::uint32_t kernel_h, bool pool) {
  const std::uint32_t line = p.taps.tile_width * p.taps.pitch;
  const std::uint32_t tile_lines = kTileUnits / line;
  if (tile_lines < kernel_h) return 0;
  const std::uint32_t most = std::min((tile_lines - kernel_h) / p.stride + 1, p.height);
  return pool ? most / 2 * 2 : most;
}

Product plan_product(const ConvSpec& s, bool data) {
  const Shape out = s.convolved();
  const auto u = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  const Shape from = data ? out : s.input;
  const Shape to = data ? s.input : out;
  Product p{};
  p.source = {TileSource::Kind::values, nullptr, nullptr, nullptr, u(from.height), u(from.width), u(from.channels)};
  p.samples = u(s.batch);
  p.height = u(to.height);
  p.width = u(to.width);
  p.outputs = u(to.channels);
  p.stride = data ? 1 : u(s.window.stride.vertical);
  p.pad_top = static_cast<std::int32_t>(data ? s.window.height - 1 - s.window.padding.top : s.window.padding.top);
  p.pad_left = static_cast<std::int32_t>(data ? s.window.width - 1 - s.window.padding.left : s.window.padding.left);
  const std::uint32_t units = units_of(from.channels);
  p.taps = {units, u(s.window.width), u(s.window.height * s.window.width) * units, pitch_of(units),
            (p.width - 1) * p.stride + u(s.window.width)};
  p.steps = (p.taps.count + 1) / 2;
  const bool pool = s.average_pool && !data;
  const std::uint32_t most = lines_that_fit(p, u(s.window.height), pool);
  if (most > 0) {
    p.bands = (p.height + most - 1) / most;
    p.lines = (p.height + p.bands - 1) / p.bands;
    if (pool) p.lines += p.lines % 2;
    p.tile_lines = (p.lines - 1) * p.stride + u(s.window.height);
  }
  p.tiles = tiles_at_once(p.outputs);
  p.groups = (units_of(p.outputs) + p.tiles - 1) / p.tiles;
  return p;
}

bool fits(const ConvSpec& s, bool data) {
  const Product p = plan_product(s, data);
  return p.lines > 0 && 2 * p.steps <= kMostPlaces;
}

std::size_t packed_elements(const Product& p) {
  return static_cast<std::size_t>(p.groups) * p.steps * p.tiles * kRowsOfTile * kChannelsOfUnit;
}

// --- packing: [group][step][tile][lane][4], with a lane's part of B contiguous.

struct Packing {
  std::uint32_t tiles, steps, units, taps;
  std::uint32_t depth, outputs;
  bool turned;
};

__device__ float packed_weight(const Packing& p, const float* weights, std::uint32_t i) {
  const std::uint32_t element = i % 4;
  const std::uint32_t lane = i / 4 % 32;
  const std::uint32_t tile = i / 128;
  const std::uint32_t step = tile / p.tiles % p.steps;
  const std::uint32_t group = tile / p.tiles / p.steps;
  const std::uint32_t output = (group * p.tiles + tile % p.tiles) * kChannelsOfUnit + lane / 4;
  const std::uint32_t unit = 2 * step + element / 2;
  const std::uint32_t tap = unit / p.units;
  const std::uint32_t channel = unit % p.units * kChannelsOfUnit + lane % 4 * 2 + element % 2;
  if (output >= p.outputs || channel >= p.depth || tap >= p.taps) return 0.0F;
  return p.turned ? weights[(channel * p.outputs + output) * p.taps + p.taps - 1 - tap]
                  : weights[(output * p.depth + channel) * p.taps + tap];
}

__global__ void pack_kernel(const float* weights, const Packing forward, __nv_bfloat16* to_forward,
                            std::uint32_t forward_count, const Packing data, __nv_bfloat16* to_data,
                            std::uint32_t data_count) {
  for (std::size_t i = first_index(); i < forward_count + data_count; i += index_step()) {
    const auto index = static_cast<std::uint32_t>(i);
    if (index < forward_count) {
      put(to_forward, index, packed_weight(forward, weights, index));
    } else {
      put(to_data, index - forward_count, packed_weight(data, weights, index - forward_count));
    }
  }
}

// --- the product

// The position of pixel m of a band; with pooling, ordered by windows.
struct Pixel {
  std::uint32_t line, column;
};
__device__ Pixel pixel_of(std::uint32_t m, std::uint32_t width, bool pool) {
  if (!pool) return {m / width, m % width};
  const std::uint32_t window = m / 4;
  return {window / (width / 2) * 2 + m % 4 / 2, window % (width / 2) * 2 + m % 2};
}

// What is there, of two adjacent channels.
__device__ inline void add_pair(const __nv_bfloat16* y, std::size_t pixel, std::uint32_t channel,
                                std::uint32_t channels, float& first, float& second) {
  const std::size_t i = pixel * channels + channel;
  first += get(y, i);
  if (channel + 1 < channels) second += get(y, i + 1);
}

// Two adjacent channels; the second one may be beyond the last.
__device__ void put_pair(__nv_bfloat16* y, std::size_t pixel, std::uint32_t channel, std::uint32_t channels,
                         float first, float second) {
  const std::size_t i = pixel * channels + channel;
  if (channels % 2 == 0) {
    put_some<2>(y, i, {first, second});
  } else {
    put(y, i, first);
    if (channel + 1 < channels) put(y, i + 1, second);
  }
}

// A warp's 16 pixels from `first` on, of `pixels` in the band, which starts at pixel `band` of the result.
template <unsigned kTiles>
__device__ void write_pixels(const Product& p, const Result& r, const float (&sums)[kTiles][4], std::uint32_t first,
                             std::uint32_t pixels, std::size_t band) {
  const unsigned lane = threadIdx.x % 32;
  for (unsigned j = 0; j < kTiles; ++j) {
    const std::uint32_t channel = (blockIdx.y * kTiles + j) * kChannelsOfUnit + lane % 4 * 2;
    if (channel >= p.outputs) continue;
    const float bias0 = r.bias == nullptr ? 0.0F : r.bias[channel];
    const float bias1 = r.bias == nullptr || channel + 1 >= p.outputs ? 0.0F : r.bias[channel + 1];
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t m = first + lane / 4 + 8 * half;
      if (m >= pixels) continue;
      float value0 = sums[j][2 * half] + bias0;
      float value1 = sums[j][2 * half + 1] + bias1;
      if (r.add) add_pair(r.y, band + m, channel, p.outputs, value0, value1);
      put_pair(r.y, band + m, channel, p.outputs, r.relu ? relu(value0) : value0, r.relu ? relu(value1) : value1);
    }
  }
}

// The same with pooling: lanes 4 and 8 apart hold the other pixels of a window.
template <unsigned kTiles>
__device__ void write_windows(const Product& p, const Result& r, const float (&sums)[kTiles][4], std::uint32_t first,
                              std::uint32_t pixels, std::size_t band) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned position = lane / 4 % 4;
  const auto over_window = [](float value) {
    value += __shfl_xor_sync(kWholeWarp, value, 4U);
    return value + __shfl_xor_sync(kWholeWarp, value, 8U);
  };
  for (unsigned j = 0; j < kTiles; ++j) {
    const std::uint32_t channel = (blockIdx.y * kTiles + j) * kChannelsOfUnit + lane % 4 * 2;
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
      open |= __shfl_xor_sync(kWholeWarp, open, 4U);
      open |= __shfl_xor_sync(kWholeWarp, open, 8U);
      if (!exists || m >= pixels) continue;
      const std::size_t window = band / 4 + m / 4;
      if (position == half) put_pair(r.y, window, channel, p.outputs, mean0, mean1);
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

template <unsigned kTiles>
__device__ inline Factors<kTiles> load_factors(const Unit* row, const std::uint16_t* places, const uint2* weights,
                                               std::uint32_t step) {
  Factors<kTiles> factors;
  for (unsigned j = 0; j < kTiles; ++j) factors.b[j] = weights[(step * kTiles + j) * 32];
  factors.a = load_matrices(row + places[2 * step + threadIdx.x % 32 / kRowsOfTile]);
  return factors;
}

// Block (sample and band, group of output channels).
template <unsigned kTiles>
__global__ void __launch_bounds__(kMostWarps * 32) conv_mma_kernel(const Product p, const Result r) {
  __shared__ Unit tile[kTileUnits];
  __shared__ std::uint16_t places[kMostPlaces];
  const unsigned lane = threadIdx.x % 32;
  const std::uint32_t sample = blockIdx.x / p.bands;
  const std::uint32_t first_line = blockIdx.x % p.bands * p.lines;
  if (first_line >= p.height) return;
  const std::uint32_t lines = p.height - first_line < p.lines ? p.height - first_line : p.lines;
  for (std::uint32_t q = threadIdx.x; q < 2 * p.steps; q += blockDim.x) {
    places[q] = static_cast<std::uint16_t>(q < p.taps.count ? p.taps.place(q) : 0);
  }
  if (p.source.channels % kChannelsOfUnit != 0) {
    zero_tile(tile, p.tile_lines * p.taps.tile_width * p.taps.pitch);
    __syncthreads();
  }
  const TileWindow window{sample,
                          static_cast<std::int32_t>(first_line * p.stride) - p.pad_top,
                          -p.pad_left,
                          p.tile_lines,
                          p.taps.tile_width,
                          0,
                          p.source.channels,
                          p.taps.pitch};
  fill_tile(p.source, window, tile);
  __syncthreads();

  const std::uint32_t pixels = lines * p.width;
  const uint2* weights = r.weights + static_cast<std::size_t>(blockIdx.y) * p.steps * kTiles * 32 + lane;
  const std::size_t band = static_cast<std::size_t>(sample * p.height + first_line) * p.width;
  for (std::uint32_t first = threadIdx.x / 32 * kRowsOfTile; first < pixels; first += blockDim.x / 32 * kRowsOfTile) {
    const std::uint32_t m = first + lane % kRowsOfTile;
    const Pixel pixel = pixel_of(m < pixels ? m : 0, p.width, r.pool);
    const Unit* row = tile + (pixel.line * p.taps.tile_width + pixel.column) * p.stride * p.taps.pitch;
    converge();
    float sums[kTiles][4] = {};
    Factors<kTiles> now = load_factors<kTiles>(row, places, weights, 0);
    for (std::uint32_t step = 0; step < p.steps; ++step) {
      // The next ones are loaded meanwhile.
      const Factors<kTiles> next = load_factors<kTiles>(row, places, weights, step + 1 < p.steps ? step + 1 : step);
      for (unsigned j = 0; j < kTiles; ++j) multiply_add(sums[j], now.a, now.b[j].x, now.b[j].y);
      now = next;
    }
    if (r.pool) {
      write_windows(p, r, sums, first, pixels, band);
    } else {
      write_pixels(p, r, sums, first, pixels, band);
    }
  }
}

void launch_product(cudaStream_t stream, const Product& p, const Result& r) {
  if (p.samples == 0) return;
  const std::uint32_t rows = (p.lines * p.width + kRowsOfTile - 1) / kRowsOfTile;
  const std::uint32_t rounds = (rows + kMostWarps - 1) / kMostWarps;
  const dim3 blocks(p.samples * p.bands, p.groups);
  const dim3 threads((rows + rounds - 1) / rounds * 32);
  const auto with = [&](auto kernel) { launch(stream, blocks, threads, kernel, p, r); };
  if (p.tiles == 1) {
    with(conv_mma_kernel<1>);
  } else if (p.tiles == 3) {
    with(conv_mma_kernel<3>);
  } else if (p.tiles == 4) {
    with(conv_mma_kernel<4>);
  } else if (p.tiles == 7) {
    with(conv_mma_kernel<7>);
  } else {
    with(conv_mma_kernel<kMostTiles>);
  }
}

Packing packing_of(const Product& p, bool turned) {
  return {p.tiles, p.steps, p.taps.units, p.taps.count / p.taps.units, p.source.channels, p.outputs, turned};
}

}  // namespace

bool conv_mma_takes(const ConvSpec& spec) {
  if (!spec.window.plain() || spec.groups != 1 || spec.input.channels > kMostInputs ||
      spec.output_channels > kMostOutputs)
    return false;
  if (!fits(spec, false) || conv_mma_partial_sums(spec) == 0) return false;
  if (!spec.input_gradient) return true;
  const bool turns = spec.window.stride == 1 &&
                     std::max(spec.window.padding.top, spec.window.padding.bottom) < spec.window.height &&
                     std::max(spec.window.padding.left, spec.window.padding.right) < spec.window.width;
  return turns && fits(spec, true);
}

std::size_t conv_mma_forward_bytes(const ConvSpec& spec) {
  return packed_elements(plan_product(spec, false)) * sizeof(__nv_bfloat16);
}

std::size_t conv_mma_data_bytes(const ConvSpec& spec) {
  return spec.input_gradient ? packed_elements(plan_product(spec, true)) * sizeof(__nv_bfloat16) : 0;
}

void conv_mma_pack(cudaStream_t stream, const ConvSpec& spec, const float* weights, void* forward, void* data) {
  const Product to_forward = plan_product(spec, false);
  const Product to_data = plan_product(spec, true);
  const std::size_t forward_count = forward == nullptr ? 0 : packed_elements(to_forward);
  const std::size_t data_count = data == nullptr ? 0 : packed_elements(to_data);
  launch(stream, blocks_for(forward_count + data_count), kThreads, pack_kernel, weights, packing_of(to_forward, false),
         as<__nv_bfloat16>(forward), forward_count, packing_of(to_data, true), as<__nv_bfloat16>(data), data_count);
}

void conv_mma_forward(cudaStream_t stream, const ConvSpec& spec, const ConvMmaForward& a) {
  Product product = plan_product(spec, false);
  product.source.values = as<__nv_bfloat16>(a.x);
  launch_product(stream, product,
                 {as<uint2>(a.packed), a.bias, as<__nv_bfloat16>(a.y), a.open, spec.relu, spec.average_pool, false});
}

void conv_mma_data(cudaStream_t stream, const ConvSpec& spec, const ConvMmaGradient& gradient, const void* packed,
                   bool add, void* dx) {
  Product product = plan_product(spec, true);
  product.source.kind = spec.average_pool ? TileSource::Kind::relu_and_pool
                        : spec.relu       ? TileSource::Kind::relu
                                          : TileSource::Kind::values;
  product.source.values = as<__nv_bfloat16>(gradient.dy);
  product.source.y = as<__nv_bfloat16>(gradient.y);
  product.source.open = gradient.open;
  launch_product(stream, product, {as<uint2>(packed), nullptr, as<__nv_bfloat16>(dx), nullptr, false, false, add});
}

}  // namespace ddp::cuda
