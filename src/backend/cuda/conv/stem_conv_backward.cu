// The gradients of weights and bias; see stem_conv.h. The rows of the product are outputs, its columns values of units, and
// its depth is pixels. A block iterates over bands. Its warps share the columns and, if these are few, the pixels. What the
// blocks have left is added in two levels.
//
// Note [Columns of two units]
// A register of the right factor holds one column of two pixels, while neighbours in memory are two columns of one pixel.
// A lane loads such a pair of two pixels, and the lower halves of both are one register, the upper halves another one. So
// two units are two tiles of 8 columns: columns 0-3 and 4-7 of the first tile are the even values of the first and of the
// second unit, and those of the second tile are the odd ones.
#include <algorithm>

#include "backend/arithmetic.h"
#include "backend/cuda/code/last_block.cuh"
#include "backend/cuda/conv/stem_conv.h"
#include "backend/cuda/conv/stem_tile.cuh"

namespace ddp::cuda {
namespace {

constexpr unsigned kGradientWarps = 4;
constexpr unsigned kGradientBlocks = 4;  // that fit on a multiprocessor
constexpr unsigned kMostStemRows = 2;    // of 16 outputs in a block
constexpr unsigned kPairs = 3;           // of units of a warp
constexpr std::uint32_t kAllGradientBlocks = 132 * kGradientBlocks;
constexpr unsigned kDepth = 16;                  // pixels of a step
constexpr std::uint32_t kTwoOnes = 0x3F803F80U;  // of bf16
constexpr unsigned kLanesTimesFour = 128;        // sums of a tile

// Tickets of the blocks that add (TwoLevels), for each group of outputs and of columns.
__device__ std::uint32_t stem_tickets[kMostTickets];

struct StemGradientPlan {
  StemImage image;
  std::uint32_t rows;  // of 16 outputs in a block
  std::uint32_t row_groups;
  std::uint32_t pairs;  // of units in all, and one more unit for the bias
  std::uint32_t column_warps, column_groups;
  std::uint32_t parts;   // of the pixels
  std::uint32_t pixels;  // of a band, a multiple of 16
  TwoLevels sums;        // of the chunks of the bands

  __host__ __device__ std::uint32_t pitch() const { return 2 * rows + 1; }  // of pixels of the gradient, in units
  __host__ __device__ std::uint32_t sums_of_warp() const { return rows * kPairs * 2 * kLanesTimesFour; }
  __host__ __device__ std::uint32_t sums_of_block() const { return column_warps * sums_of_warp(); }
  __host__ __device__ std::uint32_t parts_of_product() const { return row_groups * column_groups; }
};

struct StemGradients {
  const __nv_bfloat16* y;  // null: there is no ReLU
  const __nv_bfloat16* dy;
  float* partial;  // [chunk][part of the product][warp of columns][row][pair][tile][lane][4]
  float* weights;
  float* bias;  // null: none
};

std::uint32_t padded_pixels(const StemImage& s) { return (s.pixels() + kDepth - 1) / kDepth * kDepth; }

// Without bands if not even one line fits.
StemGradientPlan plan_backward(const ConvSpec& spec) {
  StemGradientPlan p{};
  p.image = image_of(spec);
  const std::uint32_t rows = (p.image.outputs + 15) / 16;
  p.rows = std::min(rows, kMostStemRows);
  p.row_groups = (rows + p.rows - 1) / p.rows;
  p.pairs = (p.image.units() + (spec.bias ? 1 : 0) + 1) / 2;
  const std::uint32_t warps = (p.pairs + kPairs - 1) / kPairs;
  p.column_groups = (warps + kGradientWarps - 1) / kGradientWarps;
  p.column_warps = (warps + p.column_groups - 1) / p.column_groups;
  p.parts = kGradientWarps / p.column_warps;
  divide_into_bands(p.image, kStemPixels - kDepth, kStemUnits, [&](const StemImage& s) {
    return padded_pixels(s) > kStemPixels ? kStemUnits + 1 : s.tile_units() + padded_pixels(s) * p.pitch();
  });
  p.pixels = padded_pixels(p.image);
  const std::uint32_t wanted = std::max(1U, kAllGradientBlocks / p.parts_of_product());
  p.sums = TwoLevels::of(std::clamp(p.image.all_bands(), 1U, wanted));
  return p;
}

// What the calling block has to do.
struct StemPart {
  std::uint32_t chunk, part, first_output, first_pair;

  __device__ StemPart(const StemGradientPlan& p, std::uint32_t block)
      : chunk(block % p.sums.chunks),
        part(block / p.sums.chunks),
        first_output(part / p.column_groups * p.rows * 16),
        first_pair(part % p.column_groups * p.column_warps * kPairs) {}
};

// The gradient before ReLU of a band, with zeros for outputs and pixels that do not exist. What needs no ReLU is
// complete after finish_lines().
template <unsigned kRows>
__device__ inline void load_gradient(const StemGradientPlan& p, const StemGradients& g, const StemPart& mine,
                                     const StemBand& band, Unit* gradient) {
  using Values = Pack<__nv_bfloat16, kValuesOfUnit>;
  constexpr unsigned kUnits = 2 * kRows;
  const std::size_t start = band.first_pixel(p.image) * p.image.outputs + mine.first_output;
  for (std::uint32_t i = threadIdx.x; i < p.pixels * kUnits; i += blockDim.x) {
    const std::uint32_t pixel = i / kUnits;
    const std::uint32_t output = i % kUnits * kValuesOfUnit;
    const bool exists = pixel < band.pixels && mine.first_output + output < p.image.outputs;
    const std::size_t from = exists ? start + std::size_t{pixel} * p.image.outputs + output : 0;
    __nv_bfloat16* target = gradient[pixel * (kUnits + 1) + i % kUnits].values;
    if (g.y == nullptr || !exists) {
      copy_values<kValuesOfUnit>(target, g.dy + from, exists);
      continue;
    }
    Values values = get_pack<kValuesOfUnit>(g.dy, from);
    const Values y = get_pack<kValuesOfUnit>(g.y, from);
    for (unsigned j = 0; j < kValuesOfUnit; ++j) {
      put(values.values, j, relu_gradient(get(y.values, j), get(values.values, j)));
    }
    *reinterpret_cast<Values*>(target) = values;
  }
}

template <unsigned kRows>
using StemSums = float[kRows][2 * kPairs][4];

// What a lane reads of each of its pairs: see Note [Columns of two units].
template <unsigned kRows>
struct Columns {
  std::uint32_t places[kPairs];
  bool ones[kPairs];

  __device__ Columns(const StemGradientPlan& p, std::uint32_t first_pair) {
    const unsigned column = threadIdx.x % 32 / 4;
    for (unsigned j = 0; j < kPairs; ++j) {
      const std::uint32_t unit = 2 * (first_pair + j) + column / 4;
      places[j] = p.image.place(unit) + column % 4 * kWordBytes;
      ones[j] = unit == p.image.units();
    }
  }
};

// One band's share of a warp: pixels of part `part`.
template <unsigned kRows>
__device__ inline void add_band(const StemGradientPlan& p, const Unit* tile, const Unit* gradient,
                                const std::uint16_t* places, unsigned part, const Columns<kRows>& columns,
                                StemSums<kRows>& sums) {
  constexpr unsigned kPitch = 2 * kRows + 1;
  const unsigned lane = threadIdx.x % 32;
  gradient += (lane % 8 + lane / 16 * 8) * kPitch + lane / 8 % 2;
  places += lane % 4 * 2;
  for (std::uint32_t first = part * kDepth; first < p.pixels; first += p.parts * kDepth) {
    const Pack<std::uint16_t, 2> low = *reinterpret_cast<const Pack<std::uint16_t, 2>*>(places + first);
    const Pack<std::uint16_t, 2> high = *reinterpret_cast<const Pack<std::uint16_t, 2>*>(places + first + 8);
    Matrices a[kRows];
    for (unsigned row = 0; row < kRows; ++row) a[row] = load_transposed(gradient + first * kPitch + 2 * row);
    for (unsigned j = 0; j < kPairs; ++j) {
      const std::byte* from = start_of(tile) + columns.places[j];
      const std::uint32_t pixel0 = get_word(from + low.values[0]);
      const std::uint32_t pixel1 = get_word(from + low.values[1]);
      const std::uint32_t pixel8 = get_word(from + high.values[0]);
      const std::uint32_t pixel9 = get_word(from + high.values[1]);
      const bool ones = columns.ones[j];
      const std::uint32_t even0 = ones ? kTwoOnes : lower_halves(pixel0, pixel1);
      const std::uint32_t even8 = ones ? kTwoOnes : lower_halves(pixel8, pixel9);
      const std::uint32_t odd0 = upper_halves(pixel0, pixel1);
      const std::uint32_t odd8 = upper_halves(pixel8, pixel9);
      for (unsigned row = 0; row < kRows; ++row) {
        multiply_add(sums[row][2 * j], a[row], even0, even8);
        multiply_add(sums[row][2 * j + 1], a[row], odd0, odd8);
      }
    }
  }
}

// Adds the parts of the pixels in order, in `room`; the last one writes the sums of its columns to `partial`.
template <unsigned kRows>
__device__ inline void add_parts(const StemGradientPlan& p, unsigned part, unsigned column_warp, float* room,
                                 float* partial, const StemSums<kRows>& sums) {
  constexpr unsigned kTilesOfRow = 2 * kPairs;
  const std::uint32_t start = column_warp * p.sums_of_warp() + threadIdx.x % 32 * 4;
  for (unsigned turn = 0; turn < p.parts; ++turn) {
    __syncthreads();
    if (part != turn) continue;
    for (unsigned tile = 0; tile < kRows * kTilesOfRow; ++tile) {
      const std::uint32_t place = start + tile * kLanesTimesFour;
      float values[4];
      for (unsigned i = 0; i < 4; ++i) values[i] = sums[tile / kTilesOfRow][tile % kTilesOfRow][i];
      if (turn > 0) {
        float before[4];
        get_some(room, place, before);
        for (unsigned i = 0; i < 4; ++i) values[i] += before[i];
      }
      put_some(turn + 1 < p.parts ? room : partial, place, values);
    }
  }
}

// Where the four sums from `i` on of a block belong, which are those of one lane in one tile.
template <unsigned kRows>
__device__ inline void put_stem_gradients(const StemGradientPlan& p, const StemPart& mine, const StemGradients& g,
                                          std::uint32_t i, const float (&sums)[4]) {
  const StemImage& s = p.image;
  const std::uint32_t lane = i / 4 % 32;
  const std::uint32_t tile = i / kLanesTimesFour;
  const std::uint32_t pair = tile / 2 % kPairs;
  const std::uint32_t row = tile / 2 / kPairs % kRows;
  const std::uint32_t warp = tile / 2 / kPairs / kRows;
  const std::uint32_t unit = 2 * (mine.first_pair + warp * kPairs + pair) + lane % 4 / 2;
  const StemWeights weights(s);
  for (unsigned j = 0; j < 2; ++j) {
    const std::uint32_t value_of_unit = lane % 2 * 4 + j * 2 + tile % 2;
    const StemWeights::Place place = weights.place(s, unit, value_of_unit);
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t output = mine.first_output + row * 16 + half * 8 + lane / 4;
      if (output >= s.outputs) continue;
      const float sum = sums[2 * half + j];
      if (place.exists) {
        g.weights[output * weights.of_output(s) + place.index] = sum;
      } else if (unit == s.units() && value_of_unit == 0 && g.bias != nullptr) {
        g.bias[output] = sum;
      }
    }
  }
}

// Adds the sums of `count` chunks, every step-th from `first` on, in order, and leaves them in the first one; or, if these
// are all, in the gradients.
template <unsigned kRows>
__device__ inline void add_stem_chunks(const StemGradientPlan& p, const StemPart& mine, const StemGradients& g,
                                       std::uint32_t first, std::uint32_t step, std::uint32_t count, bool all) {
  constexpr unsigned kWidth = 4;
  constexpr unsigned kAtOnce = 4;
  const std::size_t chunk_size = std::size_t{p.parts_of_product()} * p.sums_of_block();
  float* partial = g.partial + first * chunk_size + std::size_t{mine.part} * p.sums_of_block();
  const std::uint32_t next = blockDim.x * kWidth;
  for (std::uint32_t i = threadIdx.x * kWidth; i < p.sums_of_block(); i += kAtOnce * next) {
    float totals[kAtOnce][kWidth] = {};
#pragma unroll 4
    for (std::uint32_t chunk = 0; chunk < count; ++chunk) {
      for (unsigned k = 0; k < kAtOnce; ++k) {
        // Beyond the last one, once more the first.
        const std::uint32_t from = i + k * next < p.sums_of_block() ? i + k * next : i;
        const Pack<float, kWidth> some = get_fresh<kWidth>(partial + chunk * step * chunk_size + from);
        for (unsigned j = 0; j < kWidth; ++j) totals[k][j] += some.values[j];
      }
    }
    for (unsigned k = 0; k < kAtOnce && i + k * next < p.sums_of_block(); ++k) {
      if (all) {
        put_stem_gradients<kRows>(p, mine, g, i + k * next, totals[k]);
      } else {
        put_some(partial, i + k * next, totals[k]);
      }
    }
  }
}

template <unsigned kRows>
__device__ inline void finish_stem(const StemGradientPlan& p, const StemPart& mine, const StemGradients& g) {
  std::uint32_t* own = stem_tickets + mine.part * p.sums.tickets();
  p.sums.add(mine.chunk, own, [&](std::uint32_t first, std::uint32_t step, std::uint32_t count, bool all) {
    add_stem_chunks<kRows>(p, mine, g, first, step, count, all);
  });
}

template <unsigned kRows>
__global__ void __launch_bounds__(kGradientWarps * 32, kGradientBlocks)
    stem_conv_backward_kernel(const StemGradientPlan p, const __nv_bfloat16* x, const StemGradients g) {
  __shared__ Unit memory[kStemUnits];
  alignas(4) __shared__ std::uint16_t places[kStemPixels];
  const StemPart mine(p, blockIdx.x);
  const unsigned column_warp = threadIdx.x / 32 % p.column_warps;
  const unsigned part = threadIdx.x / 32 / p.column_warps;
  find_places(p.image, p.pixels, places);
  zero_tile(memory, p.image.tile_units());
  Unit* gradient = memory + p.image.tile_units();
  const Columns<kRows> columns(p, mine.first_pair + column_warp * kPairs);
  StemSums<kRows> sums = {};
  for (std::uint32_t index = mine.chunk; index < p.image.all_bands(); index += p.sums.chunks) {
    const StemBand band(p.image, index);
    __syncthreads();
    load_gradient<kRows>(p, g, mine, band, gradient);
    copy_lines(p.image, x, band.sample, band.first_line(p.image), memory);
    finish_lines(p.image, memory);
    add_band<kRows>(p, memory, gradient, places, part, columns, sums);
  }
  const std::size_t place = std::size_t{mine.chunk} * p.parts_of_product() + mine.part;
  add_parts<kRows>(p, part, column_warp, reinterpret_cast<float*>(memory), g.partial + place * p.sums_of_block(), sums);
  finish_stem<kRows>(p, mine, g);
}

}  // namespace

std::int64_t stem_conv_partial_sums(const ConvSpec& spec) {
  const StemGradientPlan p = plan_backward(spec);
  const bool fits = p.image.bands > 0 && p.parts_of_product() * p.sums.tickets() <= kMostTickets;
  return fits ? std::int64_t{p.sums.chunks} * p.parts_of_product() * p.sums_of_block() : 0;
}

void stem_conv_backward(cudaStream_t stream, const ConvSpec& spec, const StemBackward& a) {
  const StemGradientPlan p = plan_backward(spec);
  const StemGradients gradients{spec.relu ? as<__nv_bfloat16>(a.y) : nullptr, as<__nv_bfloat16>(a.dy), a.partial_sums,
                                a.weight_gradient, a.bias_gradient};
  launch(stream, p.sums.chunks * p.parts_of_product(), p.column_warps * p.parts * 32,
         p.rows == 1 ? stem_conv_backward_kernel<1> : stem_conv_backward_kernel<kMostStemRows>, p,
         as<__nv_bfloat16>(a.x), gradients);
}

}  // namespace ddp::cuda
