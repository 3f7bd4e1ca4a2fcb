#include "backend/cpu/conv/winograd/winograd.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/device/planes.h"
#include "backend/cpu/device/values.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/pointwise/elementwise_kernels.h"

LANES_BF16_TABLE(WinogradForms, winograd_kernels)
LANES_BF16_TABLE(WinogradGradientForms, winograd_gradient_kernels)

namespace ddp {
namespace {

using lanes::ConvShape;

constexpr int kFrequencies2 = 16;
// The floats of a band's transformed values, which should stay near the core: about the second-level cache, or more where
// a band needs so many tiles, since each band reads all weights. Of small images it has those of several blocks, for the
// same reason.
struct BandLimits {
  std::int64_t scratch;
  int enough_tiles;
};
constexpr BandLimits band_limits(WinogradForm form) {
  if (form.frequencies() <= kFrequencies2) return {320 * 1024, 8};
  return form.window == 3 ? BandLimits{768 * 1024, 8} : BandLimits{200 * 1024, 4};
}
constexpr int kMostTilesTogether = 16;

int tiles_of(int size, int tile) { return (size + tile - 1) / tile; }

const lanes::WinogradTable& winograd_table(const WinogradForm& form) {
  return lanes::winograd_kernels().forms[form.index];
}

template <class Value>
const lanes::WinogradKernels<Raw<Value>>& kernels_of(WinogradForm form) {
  const lanes::WinogradTable& table = winograd_table(form);
  return of_values<Value>(table.fp32, table.bf16);
}

}  // namespace

WinogradForm winograd_form(int index, Element element) {
  const lanes::WinogradTable& table = lanes::winograd_kernels().forms[index];
  return {.index = index,
          .size = table.size,
          .window = table.window,
          .stride = table.stride,
          .pairs = element == Element::bf16 && table.pairs};
}

WinogradProblem winograd_forward(const ConvSpec& spec) {
  const ConvShape shape = forward_shape(spec);
  const std::int64_t taps = std::int64_t{shape.kernel_h} * shape.kernel_w;
  return {.shape = shape,
          .spreads = false,
          .relu = spec.relu,
          .pooled = spec.average_pool,
          .out = shape.in_channels * taps,
          .in = taps,
          .flipped = false,
          .groups = spec.groups,
          .blocks = sample_blocks(spec.batch)};
}

WinogradProblem winograd_data(const ConvSpec& spec) {
  const ConvShape shape = forward_shape(spec);
  const std::int64_t taps = std::int64_t{shape.kernel_h} * shape.kernel_w;
  // Not 3x3 with stride 1, whose windows overlap less and whose products may be of pairs of channels.
  const bool spreads =
      shape.stride > 1 || (shape.kernel_h > 3 && shape.out_plane < std::int64_t{shape.in_h} * shape.in_w);
  return {.shape = spreads ? shape : data_phases(spec)[0].shape,
          .spreads = spreads,
          .relu = false,
          .pooled = false,
          .out = taps,
          .in = shape.in_channels * taps,
          .flipped = !spreads,
          .groups = spec.groups,
          .blocks = sample_blocks(spec.batch)};
}

WinogradBand winograd_band(const ConvShape& shape, WinogradForm form, std::int64_t blocks, int least_tiles) {
  const int all = tiles_of(shape.out_h, form.size);
  const int columns = tiles_of(shape.out_w, form.size);
  const std::int64_t row =
      form.frequencies() * kLanes * std::int64_t{columns} * (shape.in_channels + shape.out_channels);
  const auto [most, enough_tiles] = band_limits(form);
  WinogradBand band{};
  band.columns = columns;
  const int enough = tiles_of(enough_tiles, columns);
  band.rows = static_cast<int>(std::clamp<std::int64_t>(std::max<std::int64_t>(most / row, enough), 1, all));
  while (all % band.rows != 0) --band.rows;
  band.bands = all / band.rows;
  const int most_blocks = band.bands > 1 ? 1 : std::clamp(kMostTilesTogether / (all * columns), 1, kWinogradBlocks);
  const int least_blocks = tiles_of(least_tiles, band.rows * columns);
  band.blocks = static_cast<int>(std::min<std::int64_t>(most_blocks, std::max<std::int64_t>(blocks, least_blocks)));
  return band;
}

lanes::WinogradPlane winograd_plane(const ConvShape& shape, int size) {
  return {
      shape.in_h,   shape.in_w, shape.pad_top, shape.pad_left, shape.out_h, shape.out_w, tiles_of(shape.out_w, size),
      shape.out_row};
}

bool Winograd::supports(const ConvShape& shape, WinogradForm form) {
  return shape.kernel_h == form.window && shape.kernel_w == form.window && shape.stride == form.stride &&
         shape.out_step == 1;
}

Winograd::Winograd(const WinogradProblem& problem, const ConvTile& tile, Element element, int threads)
    : problem_(problem),
      sources_(problem.shape.in_channels),
      results_(problem.shape.out_channels),
      x_plane_(kLanes * std::int64_t{problem.shape.in_h} * problem.shape.in_w),
      y_plane_(kLanes * problem.shape.out_plane),
      form_(winograd_form(tile.form, element)),
      tile_(forward_tile(tile.index, form_.pairs)),
      products_((form_.pairs ? lanes::product_kernels().pairs : lanes::product_kernels().floats)[tile.index]),
      threads_(threads),
      plane_(winograd_plane(problem.shape, form_.size)),
      band_(winograd_band(problem.shape, form_, problem.blocks, tile_.columns)) {
  if (problem.pooled) y_plane_ /= 4;
  if (!problem.spreads) return;
  std::swap(sources_, results_);
  std::swap(x_plane_, y_plane_);
}

int Winograd::channels_together() const { return std::lcm(static_cast<int>(kLanes), tile_.channels); }
int Winograd::packed_channels() const {
  const auto all = static_cast<int>(round_up(results_, tile_.channels));
  return at_once() ? std::min(all, channels_together()) : all;
}
std::int64_t Winograd::packed_frequency() const {
  return std::int64_t{packed_channels()} * stored_channels() + kWinogradApart;
}
std::int64_t Winograd::input_frequency() const {
  return kLanes * band_.tiles() * std::int64_t{stored_channels()} + kWinogradApart;
}
std::int64_t Winograd::output_frequency(int channels) const {
  return kLanes * band_.tiles() * std::int64_t{channels} + kWinogradApart;
}
std::int64_t Winograd::image_elements() const {
  return problem_.spreads ? band_.blocks * std::int64_t{results_} * y_plane_ : 0;
}
std::int64_t Winograd::packed_elements() const {
  return (at_once() ? threads_ : problem_.groups) * form_.frequencies() * packed_frequency();
}
std::int64_t Winograd::scratch_elements() const {
  return form_.frequencies() * (input_frequency() + output_frequency(results_)) + image_elements();
}

void Winograd::pack(const float* weights, float* packed) const {
  if (at_once()) return;
  const auto stored = static_cast<int>(round_up(results_, tile_.channels));
  const int together = channels_together();
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
  for (std::int64_t g = 0; g < problem_.groups; ++g) {
    for (int first = 0; first < stored; first += together) {
      pack_channels(weights, g, {first, std::min(stored - first, together)},
                    packed + g * form_.frequencies() * packed_frequency() + std::int64_t{first} * stored_channels());
    }
  }
}

// Channels of the results that begin a tile, in steps of 16; beyond the last one its weights again.
void Winograd::pack_channels(const float* weights, std::int64_t group, const Channels& channels, float* packed) const {
  const lanes::WinogradTable& table = winograd_table(form_);
  const lanes::WinogradPack transform = form_.pairs ? table.bf16.weights : table.fp32.weights;
  const std::int64_t group_weights =
      std::int64_t{sources_} * results_ * problem_.shape.kernel_h * problem_.shape.kernel_w;
  const int tile = tile_.channels;
  std::array<lanes::WinogradPiece, kLanes> pieces{};
  for (int begin = 0; begin < channels.count; begin += static_cast<int>(kLanes)) {
    const int stored = std::min(static_cast<int>(kLanes), channels.count - begin);
    lanes::WinogradPacked to{pieces.data(), 0, tile, packed_frequency()};
    for (int lane = 0; lane < stored; ++to.count) {
      const int o = begin + lane;
      lanes::WinogradPiece& piece = pieces.at(to.count);
      piece = {lane, std::min(tile - o % tile, stored - lane),
               packed + std::int64_t{o / tile} * stored_channels() * tile + o % tile};
      lane += piece.count;
    }
    const int first = std::min(channels.first + begin, results_ - 1);
    const int outputs = std::min(results_ - first, static_cast<int>(kLanes));
    transform({weights + group * group_weights + first * problem_.out, problem_.out, problem_.in, outputs, sources_,
               problem_.flipped},
              to);
  }
}

namespace {

// f(row of tiles, its first tile, block) for the rows of a band.
template <class F>
void each_row(const WinogradBand& band, int first_row, std::int64_t first_block, std::int64_t blocks, F f) {
  for (std::int64_t b = 0; b < blocks; ++b) {
    for (int row = 0; row < band.rows; ++row) {
      f(first_row + row, (b * band.rows + row) * band.columns, first_block + b);
    }
  }
}

}  // namespace

// A channel that is read, or a pair of them, of a band: [frequency][channel][tile][sample].
template <class Value>
void Winograd::transform_channel(const Value* x, const Part& part, int channel, float* transformed) const {
  const int first = form_.pairs ? 2 * channel : channel;
  const bool both = form_.pairs && first + 1 < sources_;
  const auto* planes = raw(x + part.group * sources_ * x_plane_ + first * x_plane_);
  const lanes::WinogradKernels<Raw<Value>>& kernels = kernels_of<Value>(form_);
  const auto kernel = problem_.spreads ? kernels.spread : kernels.input;
  each_row(band_, part.row, part.first, part.count, [&](int row, std::int64_t tile, std::int64_t block) {
    const auto* const lower = planes + block * x_block();
    kernel(plane_, lower, both ? lower + x_plane_ : nullptr, row,
           transformed + kLanes * (std::int64_t{channel} * band_.tiles() + tile), input_frequency());
  });
}

// The products of the tiles of a band with the packed weights of some channels of the results, summed over those read.
void Winograd::multiply(const float* transformed, const float* packed, int channels, float* products) const {
  // Products of missing blocks, too: their results are not stored.
  products_({form_.frequencies(), stored_channels(), band_.tiles(), channels, transformed, packed, products,
             input_frequency(), packed_frequency(), output_frequency(channels)});
}

template <class Value>
void Winograd::write_results(const float* products, Value* y, const ConvBlocks& blocks, const Part& part,
                             const Channels& channels) const {
  const lanes::WinogradKernels<Raw<Value>>& kernels = kernels_of<Value>(form_);
  const auto kernel = problem_.pooled ? kernels.pooled_output : kernels.output;
  for (int i = 0; i < channels.count; ++i) {
    const std::int64_t o = part.group * results_ + channels.first + i;
    const float bias = blocks.bias == nullptr ? 0.0F : blocks.bias[o];
    each_row(band_, part.row, part.first, part.count, [&](int row, std::int64_t tile, std::int64_t block) {
      const std::int64_t at = block * y_block() + o * y_plane_;
      // There are four 16-bit masks for 16 results.
      kernel(plane_, products + kLanes * (std::int64_t{i} * band_.tiles() + tile), output_frequency(channels.count),
             row, {bias, problem_.relu, raw(y + at), problem_.pooled ? blocks.mask + at / 4 : nullptr});
    });
  }
}

// Adds a band to the results of its blocks, of which the first band is the first: in place, or in fp32 in `image`.
template <class Value>
void Winograd::spread_results(const float* products, Value* y, float* image, const Part& part) const {
  const std::int64_t size = results_ * y_plane_;
  float* sums = image;
  std::int64_t apart = size;
  if constexpr (std::is_same_v<Value, float>) {
    sums = y + part.first * y_block() + part.group * size;
    apart = y_block();
  }
  if (part.row == 0) {
    for (std::int64_t b = 0; b < part.count; ++b) std::fill_n(sums + b * apart, size, 0.0F);
  }
  for (int c = 0; c < results_; ++c) {
    each_row(band_, part.row, 0, part.count, [&](int row, std::int64_t tile, std::int64_t block) {
      winograd_table(form_).input_gradient(plane_, products + kLanes * (std::int64_t{c} * band_.tiles() + tile),
                                           output_frequency(results_), row, sums + block * apart + c * y_plane_);
    });
  }
  if constexpr (std::is_same_v<Value, Bf16>) {
    if (part.row + band_.rows < band_.rows * band_.bands) return;
    for (std::int64_t b = 0; b < part.count; ++b) {
      lanes::elementwise_kernels().to_bf16(size, image + b * size,
                                           raw(y + (part.first + b) * y_block() + part.group * size));
    }
  }
}

template <class Value>
void Winograd::run_band(const Value* x, Value* y, const ConvBlocks& blocks, const Part& part) const {
  float* transformed = blocks.scratch + omp_get_thread_num() * blocks.scratch_size;
  float* products = transformed + form_.frequencies() * input_frequency();
  for (int c = 0; c < stored_channels(); ++c) transform_channel(x, part, c, transformed);
  multiply(transformed, blocks.packed + part.group * form_.frequencies() * packed_frequency(), results_, products);
  if (problem_.spreads) {
    spread_results(products, y, products + form_.frequencies() * output_frequency(results_), part);
  } else {
    write_results(products, y, blocks, part, {0, results_});
  }
}

// All blocks as one band, whose output channels are divided among the threads.
template <class Value>
void Winograd::run_at_once(const Value* x, Value* y, const ConvBlocks& blocks) const {
  float* transformed = blocks.scratch;
  const int step = packed_channels();
#pragma omp parallel num_threads(threads_)
  for (std::int64_t g = 0; g < problem_.groups; ++g) {
    const Part part{g, 0, blocks.count, 0};
#pragma omp for schedule(static)
    for (int c = 0; c < stored_channels(); ++c) transform_channel(x, part, c, transformed);
    const int thread = omp_get_thread_num();
    float* packed = blocks.packed + thread * form_.frequencies() * packed_frequency();
    float* products = blocks.scratch + thread * blocks.scratch_size + form_.frequencies() * input_frequency();
#pragma omp for schedule(static)
    for (int first = 0; first < results_; first += step) {
      const int count = std::min(step, results_ - first);
      pack_channels(blocks.weights, g, {first, static_cast<int>(round_up(count, tile_.channels))}, packed);
      multiply(transformed, packed, count, products);
      write_results(products, y, blocks, part, {first, count});
    }
  }
}

template <class Value>
void Winograd::run_blocks(const Value* x, Value* y, const ConvBlocks& blocks) const {
  if (at_once()) return run_at_once(x, y, blocks);
  // Bands of a block that are spread add to the same results.
  const int tasks = problem_.spreads ? 1 : band_.bands;
  const int bands = band_.bands / tasks;
#pragma omp parallel for collapse(3) schedule(static) num_threads(threads_)
  for (std::int64_t b = 0; b < blocks.count; b += band_.blocks) {
    for (std::int64_t g = 0; g < problem_.groups; ++g) {
      for (int task = 0; task < tasks; ++task) {
        for (int band = task * bands; band < (task + 1) * bands; ++band) {
          run_band(x, y, blocks, {g, b, std::min<std::int64_t>(band_.blocks, blocks.count - b), band * band_.rows});
        }
      }
    }
  }
}

void Winograd::run(ConstActivations x, Activations y, const ConvBlocks& blocks) const {
  if (x.element() == Element::bf16) return run_blocks(x.bf16(), y.bf16(), blocks);
  run_blocks(x.fp32(), y.fp32(), blocks);
}

}  // namespace ddp
