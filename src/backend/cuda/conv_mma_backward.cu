// All gradients in one kernel; see conv_mma.h. Some of its blocks compute those of weight and bias, the others that of the
// input. The rows of the weights' product are output channels, its columns units of taps, and its depth is pixels. A block
// iterates over tiles of samples, and its warps share the 16-channel rows and, if these are few, the pixels. What
// the blocks have left is added in two levels.
#include <algorithm>

#include "backend/cuda/conv_mma.h"
#include "backend/cuda/conv_product.cuh"
#include "backend/cuda/last_block.cuh"

namespace ddp::cuda {
namespace {

constexpr unsigned kWarps = 8;
constexpr unsigned kMostRows = 4;  // of 16 channels in a block
constexpr unsigned kUnits = 16;    // of taps in a block
constexpr unsigned kMostPixels = 1024;
constexpr unsigned kStepPixels = 16;
constexpr std::uint32_t kOnes = 0x3F803F80U;  // two of bf16
// Two per multiprocessor of an H100.
constexpr std::uint32_t kBlocks = 264;

static_assert(kMostPixels == kMostPlaces);  // both use the same memory

// Of the blocks that add (TwoLevels), of each group of channels and of units.
__device__ std::uint32_t tickets[kMostTickets];

struct WeightPlan {
  TileSource x, gradient;
  Taps taps;
  std::uint32_t stride;
  std::int32_t pad_top, pad_left;
  std::uint32_t bands, lines;  // a tile contains this many lines of the gradient
  std::uint32_t tile_lines;    // ... and of x
  std::uint32_t pixels;        // of the gradient in a tile, a multiple of 16
  std::uint32_t gradient_pitch;
  std::uint32_t rows;  // of 16 channels in a block
  std::uint32_t row_groups, unit_groups;
  std::uint32_t jobs, jobs_per_block;  // tiles in all
  TwoLevels sums;                      // of the chunks

  __host__ __device__ std::uint32_t all_units() const { return taps.count + 1; }
  __host__ __device__ std::uint32_t columns() const { return all_units() * kChannelsOfUnit; }
  __host__ __device__ std::uint32_t x_units() const { return tile_lines * taps.tile_width * taps.pitch; }
  __host__ __device__ std::uint32_t tile_units() const { return x_units() + pixels * gradient_pitch; }
  __host__ __device__ std::uint32_t channels() const { return row_groups * rows * 16; }
  __host__ __device__ std::uint32_t blocks() const { return sums.chunks * unit_groups * row_groups; }
};

// What the calling block has to do.
struct WeightPart {
  std::uint32_t chunk, unit_group, row_group;
  std::uint32_t units, channels;  // that exist

  __device__ WeightPart(const WeightPlan& p, std::uint32_t block)
      : chunk(block % p.sums.chunks),
        unit_group(block / p.sums.chunks % p.unit_groups),
        row_group(block / p.sums.chunks / p.unit_groups) {
    const std::uint32_t units_left = p.all_units() - first_unit();
    const std::uint32_t channels_left = p.gradient.channels - first_channel(p);
    units = units_left < kUnits ? units_left : kUnits;
    channels = channels_left < p.rows * 16 ? channels_left : p.rows * 16;
  }
  __device__ std::uint32_t first_unit() const { return unit_group * kUnits; }
  __device__ std::uint32_t first_channel(const WeightPlan& p) const { return row_group * p.rows * 16; }
  __device__ std::uint32_t columns() const { return units * kChannelsOfUnit; }
};

struct WeightSums {
  float* partial;  // [chunk][channel][unit][8]
  float* weights;
  float* bias;  // null: none
};

void set_lines(WeightPlan& p, std::uint32_t kernel_h, std::uint32_t lines) {
  p.lines = lines;
  p.tile_lines = (lines - 1) * p.stride + kernel_h;
  p.pixels = (lines * p.gradient.width + kStepPixels - 1) / kStepPixels * kStepPixels;
}

// No lines if not even one fits.
WeightPlan plan_weights(const ConvSpec& s) {
  const Shape out = s.convolved();
  const auto u = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  WeightPlan p{};
  p.x = {TileSource::Kind::values, nullptr, nullptr, nullptr, u(s.input.height), u(s.input.width), u(s.input.channels)};
  p.gradient = {TileSource::Kind::values, nullptr, nullptr, nullptr, u(out.height), u(out.width), u(out.channels)};
  p.stride = u(s.window.stride.vertical);
  p.pad_top = static_cast<std::int32_t>(s.window.padding.top);
  p.pad_left = static_cast<std::int32_t>(s.window.padding.left);
  const std::uint32_t units = units_of(s.input.channels);
  p.taps = {units, u(s.window.width), u(s.window.height * s.window.width) * units, pitch_of(units),
            (u(out.width) - 1) * p.stride + u(s.window.width)};
  const std::uint32_t rows = (u(out.channels) + 15) / 16;
  p.rows = std::min(rows, kMostRows);
  p.row_groups = (rows + p.rows - 1) / p.rows;
  p.gradient_pitch = pitch_of(2 * p.rows);
  p.unit_groups = (p.all_units() + kUnits - 1) / kUnits;
  std::uint32_t most = 0;
  for (std::uint32_t lines = 1; lines <= p.gradient.height; ++lines) {
    set_lines(p, u(s.window.height), lines);
    if (p.tile_units() > kTileUnits || p.pixels > kMostPixels) break;
    most = lines;
  }
  p.lines = 0;
  if (most == 0) return p;
  p.bands = (p.gradient.height + most - 1) / most;
  set_lines(p, u(s.window.height), (p.gradient.height + p.bands - 1) / p.bands);
  p.jobs = u(s.batch) * p.bands;
  const std::uint32_t wanted = std::max(1U, kBlocks / (p.row_groups * p.unit_groups));
  p.jobs_per_block = std::max(1U, (p.jobs + wanted - 1) / wanted);
  p.sums = TwoLevels::of(std::max(1U, (p.jobs + p.jobs_per_block - 1) / p.jobs_per_block));
  return p;
}

using Sums = float[kUnits][4];

// One tile's share of a warp: pixels of part `part` of `parts`, `row` of 16 channels.
__device__ inline void add_tile(const WeightPlan& p, const Unit* x, const Unit* gradient,
                                const std::uint16_t* pixel_places, const std::uint16_t (&unit_places)[kUnits / 2],
                                unsigned row, unsigned part, unsigned parts, const WeightPart& mine, Sums& sums) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned ones = p.taps.count - mine.first_unit();
  gradient += (lane % 8 + lane / 16 * 8) * p.gradient_pitch + 2 * row + lane / 8 % 2;
  for (std::uint32_t first = part * kStepPixels; first < p.pixels; first += parts * kStepPixels) {
    const Matrices a = load_transposed(gradient + first * p.gradient_pitch);
    const Unit* taps = x + pixel_places[first + lane % 16];
    for (unsigned j = 0; j < kUnits; j += 2) {
      if (j >= mine.units) continue;
      Matrices b = load_transposed(taps + unit_places[j / 2]);
      if (j == ones) b.values[0] = b.values[1] = kOnes;
      if (j + 1 == ones) b.values[2] = b.values[3] = kOnes;
      multiply_add(sums[j], a, b.values[0], b.values[1]);
      multiply_add(sums[j + 1], a, b.values[2], b.values[3]);
    }
  }
}

// The index in shared memory of a lane's sum i of unit j.
__device__ inline unsigned place_in_room(unsigned row, unsigned j, unsigned i, unsigned lane) {
  return ((row * kUnits + j) * 4 + i) * 32 + lane;
}

// Adds the parts of the pixels in order, in `room`.
__device__ inline void add_parts(float* room, unsigned row, unsigned part, unsigned parts, const Sums& sums) {
  for (unsigned turn = 0; turn < parts; ++turn) {
    __syncthreads();
    if (part != turn) continue;
    for (unsigned j = 0; j < kUnits; ++j) {
      for (unsigned i = 0; i < 4; ++i) {
        float& place = room[place_in_room(row, j, i, threadIdx.x % 32)];
        place = turn == 0 ? sums[j][i] : place + sums[j][i];
      }
    }
  }
  __syncthreads();
}

// The product over the tiles of one chunk.
__device__ inline void multiply_chunk(const WeightPlan& p, const WeightPart& mine, float* partial,
                                      Unit (&tile)[kTileUnits], std::uint16_t (&pixel_places)[kMostPixels]) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned row = threadIdx.x / 32 % p.rows;
  const unsigned part = threadIdx.x / 32 / p.rows;
  const unsigned parts = blockDim.x / 32 / p.rows;
  for (std::uint32_t i = threadIdx.x; i < p.pixels; i += blockDim.x) {
    const std::uint32_t line = i / p.gradient.width;
    const std::uint32_t column = i % p.gradient.width;
    const std::uint32_t place = (line * p.taps.tile_width + column) * p.stride * p.taps.pitch;
    pixel_places[i] = static_cast<std::uint16_t>(line < p.lines ? place : 0);
  }
  std::uint16_t unit_places[kUnits / 2];
  for (unsigned j = 0; j < kUnits / 2; ++j) {
    const std::uint32_t unit = mine.first_unit() + 2 * j + lane / 16;
    unit_places[j] = static_cast<std::uint16_t>(unit < p.taps.count ? p.taps.place(unit) : 0);
  }
  zero_tile(tile, p.tile_units());

  Unit* gradient = tile + p.x_units();
  Sums sums = {};
  const std::uint32_t first_job = mine.chunk * p.jobs_per_block;
  for (std::uint32_t job = first_job; job < first_job + p.jobs_per_block && job < p.jobs; ++job) {
    const std::uint32_t sample = job / p.bands;
    const auto line = static_cast<std::int32_t>(job % p.bands * p.lines);
    __syncthreads();
    fill_tile(p.x,
              {sample, line * static_cast<std::int32_t>(p.stride) - p.pad_top, -p.pad_left, p.tile_lines,
               p.taps.tile_width, 0, p.x.channels, p.taps.pitch, false},
              tile);
    fill_tile(p.gradient,
              {sample, line, 0, p.lines, p.gradient.width, mine.first_channel(p), mine.channels, p.gradient_pitch,
               p.bands == 1},
              gradient);
    __syncthreads();
    add_tile(p, tile, gradient, pixel_places, unit_places, row, part, parts, mine, sums);
  }
  auto* room = reinterpret_cast<float*>(tile);
  add_parts(room, row, part, parts, sums);
  for (std::uint32_t i = threadIdx.x; i < mine.channels * mine.columns(); i += blockDim.x) {
    const std::uint32_t channel = i / mine.columns();
    const std::uint32_t column = i % mine.columns();
    const unsigned owner = channel % 8 * 4 + column % 8 / 2;
    const float sum = room[place_in_room(channel / 16, column / 8, channel % 16 / 8 * 2 + column % 2, owner)];
    const std::size_t line = static_cast<std::size_t>(mine.chunk) * p.channels() + mine.first_channel(p) + channel;
    partial[line * p.columns() + mine.first_unit() * kChannelsOfUnit + column] = sum;
  }
}

// Where the sum of a column of units belongs.
__device__ inline void put_weight(const WeightPlan& p, const WeightSums& sums, std::uint32_t output,
                                  std::uint32_t column, float sum) {
  const std::uint32_t unit = column / kChannelsOfUnit;
  const std::uint32_t channel = unit % p.taps.units * kChannelsOfUnit + column % kChannelsOfUnit;
  if (unit < p.taps.count && channel < p.x.channels) {
    const std::uint32_t taps = p.taps.count / p.taps.units;
    sums.weights[(static_cast<std::size_t>(output) * p.x.channels + channel) * taps + unit / p.taps.units] = sum;
  }
  if (column == p.taps.count * kChannelsOfUnit && sums.bias != nullptr) sums.bias[output] = sum;
}

// Adds the sums of `count` chunks, every step-th from `first` on, in order, and leaves them in the first one; or, if these
// are all, in the gradients.
__device__ inline void add_chunks(const WeightPlan& p, const WeightPart& mine, const WeightSums& sums,
                                  std::uint32_t first, std::uint32_t step, std::uint32_t count, bool all) {
  constexpr unsigned kWidth = 4;
  constexpr unsigned kAtOnce = 8;  // loads that do not wait for one another
  const std::uint32_t vectors = mine.columns() / kWidth;
  const std::size_t chunk_size = static_cast<std::size_t>(p.channels()) * p.columns();
  for (std::uint32_t i = threadIdx.x; i < mine.channels * vectors; i += blockDim.x) {
    const std::uint32_t output = mine.first_channel(p) + i / vectors;
    const std::uint32_t column = mine.first_unit() * kChannelsOfUnit + i % vectors * kWidth;
    float* place = sums.partial + first * chunk_size + static_cast<std::size_t>(output) * p.columns() + column;
    float total[kWidth] = {};
    for (std::uint32_t chunk = 0; chunk < count; chunk += kAtOnce) {
      Pack<float, kWidth> some[kAtOnce];
      for (unsigned k = 0; k < kAtOnce; ++k) {
        const std::uint32_t existing = chunk + k < count ? chunk + k : count - 1;
        some[k] = get_fresh<kWidth>(place + existing * step * chunk_size);
      }
      for (unsigned k = 0; k < kAtOnce; ++k) {
        if (chunk + k >= count) continue;
        for (unsigned j = 0; j < kWidth; ++j) total[j] += some[k].values[j];
      }
    }
    if (all) {
      for (unsigned j = 0; j < kWidth; ++j) put_weight(p, sums, output, column + j, total[j]);
    } else {
      put_some(place, 0, total);
    }
  }
}

__device__ inline void finish_weights(const WeightPlan& p, const WeightPart& mine, const WeightSums& sums) {
  std::uint32_t* own = tickets + (mine.row_group * p.unit_groups + mine.unit_group) * p.sums.tickets();
  p.sums.add(mine.chunk, own, [&](std::uint32_t first, std::uint32_t step, std::uint32_t count, bool all) {
    add_chunks(p, mine, sums, first, step, count, all);
  });
}

// Blocks that fit on a multiprocessor. What the compiler makes of eight tiles for compute capability 8.0 needs more registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <unsigned kTiles>
constexpr int kResident = kTiles < 8 ? 2 : 1;
#else
template <unsigned kTiles>
constexpr int kResident = 2;
#endif

// First the blocks of the weights, which take longer.
template <unsigned kTiles>
__global__ void __launch_bounds__(kWarps * 32, kResident<kTiles>)
    conv_mma_backward_kernel(const PreviousKernel previous, const WeightPlan p, const WeightSums sums,
                             const Product data, const Result dx) {
  previous.wait();
  __shared__ Unit tile[kTileUnits];
  __shared__ std::uint16_t places[kMostPlaces];
  if (blockIdx.x < p.blocks()) {
    const WeightPart mine(p, blockIdx.x);
    multiply_chunk(p, mine, sums.partial, tile, places);
    finish_weights(p, mine, sums);
  } else {
    const std::uint32_t block = blockIdx.x - p.blocks();
    multiply_band<kTiles>(data, dx, block % data.all_bands(), block / data.all_bands(), tile, places);
  }
}

// The gradient before ReLU and pooling.
void read_from(TileSource& source, const ConvSpec& spec, const ConvMmaGradient& gradient) {
  source.kind = spec.average_pool ? TileSource::Kind::relu_and_pool
                : spec.relu       ? TileSource::Kind::relu
                                  : TileSource::Kind::values;
  source.values = as<__nv_bfloat16>(gradient.dy);
  source.y = as<__nv_bfloat16>(gradient.y);
  source.open = gradient.open;
}

}  // namespace

std::int64_t conv_mma_partial_sums(const ConvSpec& spec) {
  const WeightPlan p = plan_weights(spec);
  const bool fits = p.lines > 0 && p.row_groups * p.unit_groups * p.sums.tickets() <= kMostTickets;
  return fits ? static_cast<std::int64_t>(p.sums.chunks) * p.channels() * p.columns() : 0;
}

void conv_mma_backward(cudaStream_t stream, const ConvSpec& spec, const ConvMmaGradient& gradient,
                       const ConvMmaBackward& a) {
  WeightPlan p = plan_weights(spec);
  p.x.values = as<__nv_bfloat16>(a.x);
  read_from(p.gradient, spec, gradient);
  const WeightSums sums{a.partial_sums, a.weight_gradient, a.bias_gradient};
  Product data{};
  data.tiles = 1;
  Result dx{};
  if (spec.input_gradient) {
    data = plan_product(spec, true);
    read_from(data.source, spec, gradient);
    // Behind the fragments of forward.
    const auto* packed = as<__nv_bfloat16>(a.packed) + conv_mma_packed(spec).fragments(false).elements();
    dx.weights = as<uint2>(static_cast<const void*>(packed));
    dx.y = as<__nv_bfloat16>(a.dx);
    dx.add = a.add;
  }
  with_tiles(data.tiles, [&](auto tiles) {
    launch(stream, p.blocks() + data.all_bands() * data.groups, kWarps / p.rows * p.rows * 32,
           conv_mma_backward_kernel<decltype(tiles)::value>, p, sums, data, dx);
  });
}

}  // namespace ddp::cuda
