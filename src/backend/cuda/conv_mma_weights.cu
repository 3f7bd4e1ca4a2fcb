// Gradients of weight and bias; see conv_mma.h. The rows of the product are output channels, its columns units of taps,
// and its depth is pixels. A block iterates over tiles of samples, and its warps share the 16-channel rows and, if
// these are few, the pixels. A second kernel adds the blocks.
#include <algorithm>

#include "backend/cuda/conv_mma.h"
#include "backend/cuda/conv_tile.cuh"

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

// Blocks of the second kernel: columns and lines of threads.
constexpr unsigned kColumns = 32;
constexpr unsigned kLines = 8;

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
  std::uint32_t jobs, jobs_per_block, chunks;  // tiles in all

  __host__ __device__ std::uint32_t all_units() const { return taps.count + 1; }
  __host__ __device__ std::uint32_t columns() const { return all_units() * kChannelsOfUnit; }
  __host__ __device__ std::uint32_t x_units() const { return tile_lines * taps.tile_width * taps.pitch; }
  __host__ __device__ std::uint32_t tile_units() const { return x_units() + pixels * gradient_pitch; }
  __host__ __device__ std::uint32_t channels() const { return row_groups * rows * 16; }
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
  p.gradient = {s.average_pool ? TileSource::Kind::relu_and_pool
                : s.relu       ? TileSource::Kind::relu
                               : TileSource::Kind::values,
                nullptr,
                nullptr,
                nullptr,
                u(out.height),
                u(out.width),
                u(out.channels)};
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
  p.chunks = std::max(1U, (p.jobs + p.jobs_per_block - 1) / p.jobs_per_block);
  return p;
}

using Sums = float[kUnits][4];

// One tile's share of a warp: pixels of part `part` of `parts`, `row` of 16 channels. `units` of the block exist.
__device__ inline void add_tile(const WeightPlan& p, const Unit* x, const Unit* gradient,
                                const std::uint16_t* pixel_places, const std::uint16_t (&unit_places)[kUnits / 2],
                                unsigned row, unsigned part, unsigned parts, unsigned units, Sums& sums) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned ones = p.taps.count - blockIdx.y * kUnits;
  gradient += (lane % 8 + lane / 16 * 8) * p.gradient_pitch + 2 * row + lane / 8 % 2;
  for (std::uint32_t first = part * kStepPixels; first < p.pixels; first += parts * kStepPixels) {
    const Matrices a = load_transposed(gradient + first * p.gradient_pitch);
    const Unit* taps = x + pixel_places[first + lane % 16];
    for (unsigned j = 0; j < kUnits; j += 2) {
      if (j >= units) continue;
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

// Block (chunk of tiles, group of units, group of channels); partial sums [chunk][channel][unit][8].
__global__ void __launch_bounds__(kWarps * 32, 2) weights_kernel(const WeightPlan p, float* partial) {
  __shared__ Unit tile[kTileUnits];
  __shared__ std::uint16_t pixel_places[kMostPixels];
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
    const std::uint32_t unit = blockIdx.y * kUnits + 2 * j + lane / 16;
    unit_places[j] = static_cast<std::uint16_t>(unit < p.taps.count ? p.taps.place(unit) : 0);
  }
  zero_tile(tile, p.tile_units());

  Unit* gradient = tile + p.x_units();
  const std::uint32_t first_channel = blockIdx.z * p.rows * 16;
  const std::uint32_t rest = p.gradient.channels - first_channel;
  const std::uint32_t channels = rest < p.rows * 16 ? rest : p.rows * 16;
  const std::uint32_t units_left = p.all_units() - blockIdx.y * kUnits;
  const unsigned units = units_left < kUnits ? units_left : kUnits;
  Sums sums = {};
  const std::uint32_t first_job = blockIdx.x * p.jobs_per_block;
  for (std::uint32_t job = first_job; job < first_job + p.jobs_per_block && job < p.jobs; ++job) {
    const std::uint32_t sample = job / p.bands;
    const auto line = static_cast<std::int32_t>(job % p.bands * p.lines);
    __syncthreads();
    fill_tile(p.x,
              {sample, line * static_cast<std::int32_t>(p.stride) - p.pad_top, -p.pad_left, p.tile_lines,
               p.taps.tile_width, 0, p.x.channels, p.taps.pitch},
              tile);
    fill_tile(p.gradient, {sample, line, 0, p.lines, p.gradient.width, first_channel, channels, p.gradient_pitch},
              gradient);
    __syncthreads();
    add_tile(p, tile, gradient, pixel_places, unit_places, row, part, parts, units, sums);
  }
  auto* room = reinterpret_cast<float*>(tile);
  add_parts(room, row, part, parts, sums);
  const std::uint32_t columns = units * kChannelsOfUnit;
  for (std::uint32_t i = threadIdx.x; i < p.rows * 16 * columns; i += blockDim.x) {
    const std::uint32_t channel = i / columns;
    const std::uint32_t column = i % columns;
    const unsigned owner = channel % 8 * 4 + column % 8 / 2;
    const float sum = room[place_in_room(channel / 16, column / 8, channel % 16 / 8 * 2 + column % 2, owner)];
    const std::size_t line = static_cast<std::size_t>(blockIdx.x) * p.channels() + first_channel + channel;
    partial[line * p.columns() + blockIdx.y * kUnits * kChannelsOfUnit + column] = sum;
  }
}

// Block (columns, output channel): each line adds every kLines-th chunk, then the lines are added in order.
__global__ void add_chunks_kernel(const WeightPlan p, const float* partial, float* weights, float* bias) {
  __shared__ float lines[kLines][kColumns];
  const std::uint32_t column = blockIdx.x * kColumns + threadIdx.x;
  float sum = 0.0F;
  for (std::uint32_t chunk = threadIdx.y; chunk < p.chunks && column < p.columns(); chunk += kLines) {
    sum += partial[(static_cast<std::size_t>(chunk) * p.channels() + blockIdx.y) * p.columns() + column];
  }
  lines[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0) return;
  for (unsigned line = 1; line < kLines; ++line) sum += lines[line][threadIdx.x];
  const std::uint32_t unit = column / kChannelsOfUnit;
  const std::uint32_t channel = unit % p.taps.units * kChannelsOfUnit + column % kChannelsOfUnit;
  if (unit < p.taps.count && channel < p.x.channels) {
    const std::uint32_t taps = p.taps.count / p.taps.units;
    weights[(static_cast<std::size_t>(blockIdx.y) * p.x.channels + channel) * taps + unit / p.taps.units] = sum;
  }
  if (column == p.taps.count * kChannelsOfUnit && bias != nullptr) bias[blockIdx.y] = sum;
}

}  // namespace

std::int64_t conv_mma_partial_sums(const ConvSpec& spec) {
  const WeightPlan p = plan_weights(spec);
  return p.lines == 0 ? 0 : static_cast<std::int64_t>(p.chunks) * p.channels() * p.columns();
}

void conv_mma_weights(cudaStream_t stream, const ConvSpec& spec, const ConvMmaGradient& gradient, const void* x,
                      float* partial_sums, float* weight_gradient, float* bias_gradient) {
  WeightPlan p = plan_weights(spec);
  p.x.values = as<__nv_bfloat16>(x);
  p.gradient.values = as<__nv_bfloat16>(gradient.dy);
  p.gradient.y = as<__nv_bfloat16>(gradient.y);
  p.gradient.open = gradient.open;
  launch(stream, dim3(p.chunks, p.unit_groups, p.row_groups), kWarps / p.rows * p.rows * 32, weights_kernel, p,
         partial_sums);
  launch(stream, dim3((p.columns() + kColumns - 1) / kColumns, static_cast<unsigned>(spec.output_channels)),
         dim3(kColumns, kLines), add_chunks_kernel, p, partial_sums, weight_gradient, bias_gradient);
}

}  // namespace ddp::cuda
