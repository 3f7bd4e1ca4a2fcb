// All gradients in one kernel; see conv_mma.h. Some of its blocks compute those of weight and bias, the others that of the
// input. The rows of the weights' product are output channels, its columns units of taps, and its depth is pixels. A block
// iterates over tiles of samples, and its warps share the 16-channel rows and, if these are few, the pixels. What
// the blocks have left is added in two levels.
#include <algorithm>

#include "backend/cuda/code/last_block.cuh"
#include "backend/cuda/conv/conv_mma.h"
#include "backend/cuda/conv/conv_product.cuh"

namespace ddp::cuda {
namespace {

constexpr unsigned kWarps = 8;
constexpr unsigned kMostRows = 4;     // of 16 channels in a block
constexpr unsigned kUnits = 16;       // of taps in a block
constexpr unsigned kUnitsAtOnce = 8;  // ... of which shared memory holds the sums of all warps
constexpr unsigned kMostPixels = 1024;
constexpr unsigned kStepPixels = 16;
constexpr std::uint32_t kOnes = 0x3F803F80U;  // two of bf16
// Two per multiprocessor of an H100.
constexpr std::uint32_t kBlocks = 264;

static_assert(kMostPixels == kMostPlaces);  // both use the same memory
static_assert(kWarps * kUnitsAtOnce * 32 * 4 * sizeof(float) <= kTileUnits * sizeof(Unit));

// Tickets of the blocks that add (TwoLevels), for each group of channels and of units.
__device__ std::uint32_t tickets[kMostTickets];

struct WeightPlan {
  TileSource x, gradient;
  TileGrid x_grid, gradient_grid;
  Taps taps;
  std::uint32_t stride;
  std::int32_t pad_top;
  Divisor width;  // of the gradient
  Divisor bands;
  std::uint32_t lines;       // a tile contains this many lines of the gradient
  std::uint32_t tile_lines;  // ... and of x
  std::uint32_t pixels;      // of the gradient in a tile, a multiple of 16
  std::uint32_t rows;        // of 16 channels in a block
  std::uint32_t row_groups;
  Divisor unit_groups, chunks;
  std::uint32_t jobs, jobs_per_block;  // tiles in all
  TwoLevels sums;                      // of the chunks

  __host__ __device__ std::uint32_t all_units() const { return taps.count + 1; }
  __host__ __device__ std::uint32_t columns() const { return all_units() * kChannelsOfUnit; }
  __host__ __device__ std::uint32_t x_units() const { return tile_lines * taps.tile_width * taps.pitch; }
  __host__ __device__ std::uint32_t tile_units() const { return x_units() + pixels * gradient_grid.pitch; }
  __host__ __device__ std::uint32_t channels() const { return row_groups * rows * 16; }
  __host__ __device__ std::uint32_t blocks() const { return sums.chunks * unit_groups.number() * row_groups; }
};

// What the calling block has to do.
struct WeightPart {
  std::uint32_t chunk, unit_group, row_group;
  std::uint32_t units, channels;  // that exist

  __device__ WeightPart(const WeightPlan& p, std::uint32_t block) {
    const std::uint32_t group = p.chunks.quotient(block);
    chunk = p.chunks.remainder(block, group);
    row_group = p.unit_groups.quotient(group);
    unit_group = p.unit_groups.remainder(group, row_group);
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

// Without pointers. No lines if not even one fits.
WeightPlan plan_weights(const ConvSpec& s, std::uint32_t parts) {
  const Shape out = s.convolved();
  const auto u = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  WeightPlan p{};
  p.x = {TileSource::Kind::values, nullptr, nullptr, nullptr, u(s.input.height), u(s.input.width),
         u(s.input.channels),      parts};
  p.gradient = {kind_of_gradient(s), nullptr, nullptr, nullptr, u(out.height), u(out.width), u(out.channels), parts};
  p.stride = u(s.window.stride.vertical);
  p.pad_top = static_cast<std::int32_t>(s.window.padding.top);
  p.width = Divisor(p.gradient.width);
  const std::uint32_t units = units_of(s.input.channels);
  p.taps = {Divisor(units), Divisor(u(s.window.width)), u(s.window.height * s.window.width) * units,
            pitch_of(units * parts), (u(out.width) - 1) * p.stride + u(s.window.width)};
  p.x_grid =
      tile_grid(p.x, -static_cast<std::int32_t>(s.window.padding.left), p.taps.tile_width, p.x.channels, units, false);
  const std::uint32_t rows = (u(out.channels) + 15) / 16;
  p.rows = std::min(rows, kMostRows);
  p.row_groups = (rows + p.rows - 1) / p.rows;
  p.unit_groups = Divisor((p.all_units() + kUnits - 1) / kUnits);
  const auto set_gradient_grid = [&](bool cleared) {
    p.gradient_grid =
        tile_grid(p.gradient, 0, p.gradient.width, std::min(p.gradient.channels, p.rows * 16), 2 * p.rows, cleared);
  };
  set_gradient_grid(false);
  std::uint32_t most = 0;
  for (std::uint32_t lines = 1; lines <= p.gradient.height; ++lines) {
    set_lines(p, u(s.window.height), lines);
    if (p.tile_units() > kTileUnits || p.pixels > kMostPixels) break;
    most = lines;
  }
  p.lines = 0;
  if (most == 0) return p;
  p.bands = Divisor((p.gradient.height + most - 1) / most);
  set_lines(p, u(s.window.height), (p.gradient.height + p.bands.number() - 1) / p.bands.number());
  set_gradient_grid(p.bands.number() == 1);
  p.jobs = u(s.batch) * p.bands.number();
  const std::uint32_t wanted = std::max(1U, kBlocks / (p.row_groups * p.unit_groups.number()));
  p.jobs_per_block = std::max(1U, (p.jobs + wanted - 1) / wanted);
  p.sums = TwoLevels::of(std::max(1U, (p.jobs + p.jobs_per_block - 1) / p.jobs_per_block));
  p.chunks = Divisor(p.sums.chunks);
  return p;
}

using Sums = float[kUnits][4];

// One tile's share of a warp: pixels of part `part` of `parts`, `row` of 16 channels. `one`: two values of the unit of ones.
template <class T>
__device__ inline void add_products(const WeightPlan& p, const Unit* x, const Unit* gradient,
                                    const std::uint16_t* pixel_places, const std::uint16_t (&unit_places)[kUnits],
                                    unsigned row, unsigned part, unsigned parts, const WeightPart& mine,
                                    std::uint32_t one, Sums& sums) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned ones = p.taps.count - mine.first_unit();
  gradient += (lane % 8 + lane / 16 * 8) * p.gradient_grid.pitch + 2 * row + lane / 8 % 2;
  const Unit* units[kUnits / 2];
  for (unsigned j = 0; j < kUnits / 2; ++j) units[j] = x + unit_places[2 * j + lane / 16];
#pragma unroll 1
  for (std::uint32_t first = part * kStepPixels; first < p.pixels; first += parts * kStepPixels) {
    const Matrices a = load_transposed(gradient + first * p.gradient_grid.pitch);
    const std::uint32_t pixel = pixel_places[first + lane % 16];
    for (unsigned j = 0; j < kUnits; j += 2) {
      if (j >= mine.units) continue;
      Matrices b = load_transposed(units[j / 2] + pixel);
      if (j == ones) b.values[0] = b.values[1] = one;
      if (j + 1 == ones) b.values[2] = b.values[3] = one;
      add_product<T>(sums[j], a, b.values[0], b.values[1]);
      add_product<T>(sums[j + 1], a, b.values[2], b.values[3]);
    }
  }
}

// Adds the warps' parts of the pixels in order, for some units at a time, and leaves the sums in memory. `room`:
// [part][row][unit][sum of a lane][lane].
__device__ inline void put_parts(const WeightPlan& p, const WeightPart& mine, float* room, const Sums& sums,
                                 float* partial) {
  constexpr unsigned kOfWarp = kUnitsAtOnce * 4 * 32;
  const unsigned lane = threadIdx.x % 32;
  const unsigned parts = blockDim.x / 32 / p.rows;
  partial += (static_cast<std::size_t>(mine.chunk) * p.channels() + mine.first_channel(p)) * p.columns() +
             mine.first_unit() * kChannelsOfUnit;
  for (unsigned turn = 0; turn < kUnits / kUnitsAtOnce; ++turn) {
    __syncthreads();
    float* own = room + threadIdx.x / 32 * kOfWarp + lane;
    for (unsigned j = 0; j < kUnitsAtOnce * 4; ++j) own[j * 32] = sums[turn * kUnitsAtOnce + j / 4][j % 4];
    __syncthreads();
    // Pairs of adjacent columns.
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < p.rows * kOfWarp / 2; i += blockDim.x) {
      const unsigned of_lane = i / 32;
      const unsigned row = i / (kOfWarp / 2);
      const unsigned channel = row * 16 + of_lane % 2 * 8 + lane / 4;
      const unsigned column = (turn * kUnitsAtOnce + of_lane / 2 % kUnitsAtOnce) * kChannelsOfUnit + lane % 4 * 2;
      const float* part = room + of_lane * 64 + lane;
      float first = part[0];
      float second = part[32];
#pragma unroll 1
      for (unsigned k = 1; k < parts; ++k) {
        part += p.rows * kOfWarp;
        first += part[0];
        second += part[32];
      }
      if (channel >= mine.channels || column >= mine.columns()) continue;
      put_some<2>(partial, static_cast<std::size_t>(channel) * p.columns() + column, {first, second});
    }
  }
}

// Where the pixels and units of a tile are, and zeros in the tile: what does not depend on earlier kernels.
__device__ inline void prepare_tile(const WeightPlan& p, const WeightPart& mine, Unit (&tile)[kTileUnits],
                                    std::uint16_t (&pixel_places)[kMostPixels], std::uint16_t (&unit_places)[kUnits]) {
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; i < p.pixels; i += blockDim.x) {
    const std::uint32_t line = p.width.quotient(i);
    const std::uint32_t place = (line * p.taps.tile_width + p.width.remainder(i, line)) * p.stride * p.taps.pitch;
    pixel_places[i] = static_cast<std::uint16_t>(line < p.lines ? place : 0);
  }
  if (threadIdx.x < kUnits) {
    const std::uint32_t unit = mine.first_unit() + threadIdx.x;
    unit_places[threadIdx.x] = static_cast<std::uint16_t>(unit < p.taps.count ? p.taps.place(unit) : 0);
  }
  zero_tile(tile, p.tile_units());
}

// The product over the tiles of one chunk, after prepare_tile().
template <class T>
__device__ inline void multiply_chunk(const WeightPlan& p, const WeightPart& mine, float* partial,
                                      Unit (&tile)[kTileUnits], const std::uint16_t (&pixel_places)[kMostPixels],
                                      const std::uint16_t (&unit_places)[kUnits]) {
  const unsigned row = threadIdx.x / 32 % p.rows;
  const unsigned part = threadIdx.x / 32 / p.rows;
  const unsigned parts = blockDim.x / 32 / p.rows;
  Unit* gradient = tile + p.x_units();
  Sums sums = {};
  const std::uint32_t first_job = mine.chunk * p.jobs_per_block;
#pragma unroll 1
  for (std::uint32_t job = first_job; job < first_job + p.jobs_per_block && job < p.jobs; ++job) {
    const std::uint32_t sample = p.bands.quotient(job);
    const auto line = static_cast<std::int32_t>(p.bands.remainder(job, sample) * p.lines);
    __syncthreads();
    fill_tile<T, false>(p.x, p.x_grid,
                        {sample, line * static_cast<std::int32_t>(p.stride) - p.pad_top, p.tile_lines, 0}, tile);
    fill_tile<T, true>(p.gradient, p.gradient_grid, {sample, line, p.lines, mine.first_channel(p)}, gradient);
    wait_for_copies();
    __syncthreads();
    each_product<T>(p.x.parts, [&](std::uint32_t of_gradient, std::uint32_t of_x) {
      // Ones have no other part than the first.
      add_products<T>(p, tile + of_x * p.x_grid.part_units, gradient + of_gradient * p.gradient_grid.part_units,
                      pixel_places, unit_places, row, part, parts, mine, of_x == 0 ? kOnes : 0, sums);
    });
  }
  put_parts(p, mine, reinterpret_cast<float*>(tile), sums, partial);
}

// Where the sums of four columns of a unit belong.
__device__ inline void put_weights(const WeightPlan& p, const WeightSums& sums, std::uint32_t output,
                                   std::uint32_t column, const float (&total)[4]) {
  const std::uint32_t unit = column / kChannelsOfUnit;
  const std::uint32_t tap = p.taps.units.quotient(unit);
  const std::uint32_t channel = p.taps.units.remainder(unit, tap) * kChannelsOfUnit + column % kChannelsOfUnit;
  const std::uint32_t taps = p.taps.count / p.taps.units.number();
  float* weights = sums.weights + (static_cast<std::size_t>(output) * p.x.channels + channel) * taps + tap;
  for (unsigned j = 0; j < 4; ++j) {
    if (unit < p.taps.count && channel + j < p.x.channels) weights[j * taps] = total[j];
  }
  if (column == p.taps.count * kChannelsOfUnit && sums.bias != nullptr) sums.bias[output] = total[0];
}

// Adds the sums of `count` chunks, every step-th from `first` on, in order, and leaves them in the first one; or, if these
// are all, in the gradients.
__device__ inline void add_chunks(const WeightPlan& p, const WeightPart& mine, const WeightSums& sums,
                                  std::uint32_t first, std::uint32_t step, std::uint32_t count, bool all) {
  constexpr unsigned kWidth = 4;
  constexpr unsigned kAtOnce = 8;  // loads that do not wait for one another
  constexpr unsigned kVectors = kUnits * kChannelsOfUnit / kWidth;
  const std::size_t chunk_size = static_cast<std::size_t>(p.channels()) * p.columns();
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; i < mine.channels * kVectors; i += blockDim.x) {
    if (i % kVectors * kWidth >= mine.columns()) continue;
    const std::uint32_t output = mine.first_channel(p) + i / kVectors;
    const std::uint32_t column = mine.first_unit() * kChannelsOfUnit + i % kVectors * kWidth;
    float* place = sums.partial + first * chunk_size + static_cast<std::size_t>(output) * p.columns() + column;
    float total[kWidth] = {};
#pragma unroll 1
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
      put_weights(p, sums, output, column, total);
    } else {
      put_some(place, 0, total);
    }
  }
}

__device__ inline void finish_weights(const WeightPlan& p, const WeightPart& mine, const WeightSums& sums) {
  std::uint32_t* own = tickets + (mine.row_group * p.unit_groups.number() + mine.unit_group) * p.sums.tickets();
  p.sums.add(mine.chunk, own, [&](std::uint32_t first, std::uint32_t step, std::uint32_t count, bool all) {
    add_chunks(p, mine, sums, first, step, count, all);
  });
}

// First the blocks of the weights, which take longer.
template <class T, unsigned kTiles>
__global__ void __launch_bounds__(kWarps * 32, 2)
    conv_mma_backward_kernel(const PreviousKernel previous, const WeightPlan p, const WeightSums sums,
                             const Product data, const Result dx) {
  __shared__ Unit tile[kTileUnits];
  __shared__ std::uint16_t places[kMostPlaces];
  __shared__ std::uint16_t unit_places[kUnits];
  const bool weights = blockIdx.x < p.blocks();
  const WeightPart mine(p, blockIdx.x);
  if (weights) {
    prepare_tile(p, mine, tile, places, unit_places);
  } else {
    prepare_band(data, tile, places);
  }
  previous.wait();
  if (weights) {
    multiply_chunk<T>(p, mine, sums.partial, tile, places, unit_places);
    finish_weights(p, mine, sums);
  } else {
    const std::uint32_t block = blockIdx.x - p.blocks();
    const std::uint32_t group = block / data.all_bands();
    multiply_band<T, kTiles, true>(data, dx, block - group * data.all_bands(), group, tile, places);
  }
}

// The gradient before ReLU and pooling.
void read_from(TileSource& source, const ConvMmaGradient& gradient) {
  source.values = gradient.dy;
  source.y = gradient.y;
  source.open = gradient.open;
}

}  // namespace

std::int64_t conv_mma_partial_sums(const ConvSpec& spec, std::uint32_t parts) {
  const WeightPlan p = plan_weights(spec, parts);
  // The latter for Divisor.
  const bool fits = p.lines > 0 && p.row_groups * p.unit_groups.number() * p.sums.tickets() <= kMostTickets &&
                    std::int64_t{p.jobs} * p.bands.number() < std::int64_t{1} << 31 &&
                    std::int64_t{p.blocks()} * p.sums.chunks < std::int64_t{1} << 31;
  return fits ? static_cast<std::int64_t>(p.sums.chunks) * p.channels() * p.columns() : 0;
}

void conv_mma_backward(cudaStream_t stream, const ConvSpec& spec, std::uint32_t parts, const ConvMmaGradient& gradient,
                       const ConvMmaBackward& a) {
  WeightPlan p = plan_weights(spec, parts);
  p.x.values = a.x;
  read_from(p.gradient, gradient);
  const WeightSums sums{a.partial_sums, a.weight_gradient, a.bias_gradient};
  Product data{};
  data.tiles = 1;
  Result dx{};
  if (spec.input_gradient) {
    data = plan_product(spec, parts, true);
    read_from(data.source, gradient);
    // Behind the fragments of forward.
    const auto* packed =
        as<__nv_bfloat16>(a.packed) + std::int64_t{parts} * conv_mma_packed(spec, parts).fragments(false).elements();
    dx.weights = as<uint2>(static_cast<const void*>(packed));
    dx.y = a.dx;
    dx.add = a.add;
  }
  with_tiles(data.tiles, [&](auto tiles) {
    constexpr unsigned kTiles = decltype(tiles)::value;
    const auto kernel =
        parts == 1 ? conv_mma_backward_kernel<__nv_bfloat16, kTiles> : conv_mma_backward_kernel<float, kTiles>;
    launch(stream, p.blocks() + data.all_bands() * data.groups, kWarps / p.rows * p.rows * 32, kernel, p, sums, data,
           dx);
  });
}

}  // namespace ddp::cuda
