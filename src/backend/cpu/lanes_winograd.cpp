#include "backend/cpu/lanes_winograd.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "backend/cpu/lanes_shapes.h"
#include "backend/cpu/values.h"

namespace ddp {
namespace {

using lanes::ConvShape;

constexpr std::size_t kMostFrequencies = 36;
// The floats of a band's transformed values, which should stay near the core: about the second-level cache, and with 36
// frequencies more, because a band must have enough tiles for the products.
constexpr std::int64_t kMostScratch2 = 320 * 1024;
constexpr std::int64_t kMostScratch4 = 768 * 1024;
// With 36 frequencies a band has at least so many tiles, since each reads all weights. Of small images it has those of
// several blocks, for the same reason.
constexpr int kEnoughTiles = 8;
constexpr int kMostTilesTogether = 16;
constexpr int kMostTogether = 4;

int tiles_of(int size, int tile) { return (size + tile - 1) / tile; }

lanes::WinogradPack pack_kernel(WinogradForm form) {
  const lanes::Kernels& all = lanes::kernels();
  if (form.size == 4) return all.winograd4.weights;
  return form.pairs ? all.winograd2_pairs.weights : all.winograd2.weights;
}

template <class Value>
const lanes::WinogradKernels<Raw<Value>>& kernels_of(WinogradForm form) {
  const lanes::Kernels& all = lanes::kernels();
  return form.size == 4 ? of_values<Value>(all.winograd4, all.winograd4_bf16)
                        : of_values<Value>(all.winograd2, all.winograd2_pairs);
}

// The first `count` values of all frequencies, `step` floats apart.
template <std::size_t Count>
void copy_frequencies(const float* from, float* to, std::int64_t step, int frequencies) {
  for (int f = 0; f < frequencies; ++f) std::memcpy(to + f * step, from + f * kLanes, Count * sizeof(float));
}
void copy_frequencies(const float* from, float* to, int count, std::int64_t step, int frequencies) {
  // The numbers that most tiles have.
  switch (count) {
    case 2:
      return copy_frequencies<2>(from, to, step, frequencies);
    case 4:
      return copy_frequencies<4>(from, to, step, frequencies);
    case 6:
      return copy_frequencies<6>(from, to, step, frequencies);
    case 8:
      return copy_frequencies<8>(from, to, step, frequencies);
    case 12:
      return copy_frequencies<12>(from, to, step, frequencies);
    default:
      for (int i = 0; i < count; ++i) copy_frequencies<1>(from + i, to + i, step, frequencies);
  }
}

}  // namespace

WinogradBand winograd_band(const ConvShape& shape, int size) {
  const int all = tiles_of(shape.out_h, size);
  const int columns = tiles_of(shape.out_w, size);
  const std::int64_t row = WinogradForm{.size = size}.frequencies() * kLanes * std::int64_t{columns} *
                           (shape.in_channels + shape.out_channels);
  WinogradBand band{};
  band.columns = columns;
  const std::int64_t most = size == 4 ? kMostScratch4 : kMostScratch2;
  const int enough = size == 4 ? tiles_of(kEnoughTiles, columns) : 1;
  band.rows = static_cast<int>(std::clamp<std::int64_t>(std::max<std::int64_t>(most / row, enough), 1, all));
  while (all % band.rows != 0) --band.rows;
  band.bands = all / band.rows;
  band.blocks = band.bands > 1 ? 1 : std::clamp(kMostTilesTogether / (all * columns), 1, kMostTogether);
  return band;
}

lanes::WinogradPlane winograd_plane(const ConvShape& shape, int size) {
  return {
      shape.in_h,   shape.in_w, shape.pad_top, shape.pad_left, shape.out_h, shape.out_w, tiles_of(shape.out_w, size),
      shape.out_row};
}

bool Winograd::supports(const ConvShape& shape) {
  return shape.kernel_h == 3 && shape.kernel_w == 3 && shape.stride == 1 && shape.out_step == 1;
}

Winograd::Winograd(const ConvShape& shape, const lanes::ForwardTile& tile, WinogradForm form, const Extent& extent)
    : shape_(shape),
      tile_(tile),
      form_(form),
      extent_(extent),
      plane_(winograd_plane(shape, form.size)),
      band_(winograd_band(shape, form.size)) {}

int Winograd::channels_together() const { return std::lcm(static_cast<int>(kLanes), tile_.channels); }
int Winograd::packed_channels() const {
  const auto all = static_cast<int>(round_up(shape_.out_channels, tile_.channels));
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
std::int64_t Winograd::packed_elements() const {
  return (at_once() ? extent_.threads : extent_.groups) * form_.frequencies() * packed_frequency();
}
std::int64_t Winograd::scratch_elements() const {
  return form_.frequencies() * (input_frequency() + output_frequency(shape_.out_channels));
}

void Winograd::prepare(const Weights& weights) const {
  if (at_once()) return;
  const auto stored = static_cast<int>(round_up(shape_.out_channels, tile_.channels));
  const int together = channels_together();
#pragma omp parallel for collapse(2) schedule(static) num_threads(extent_.threads)
  for (std::int64_t g = 0; g < extent_.groups; ++g) {
    for (int first = 0; first < stored; first += together) {
      pack(weights, g, {first, std::min(stored - first, together)},
           weights.packed + g * form_.frequencies() * packed_frequency() + std::int64_t{first} * stored_channels());
    }
  }
}

// Output channels that begin a tile, in steps of 16; zero beyond the last one.
void Winograd::pack(const Weights& weights, std::int64_t group, const Channels& channels, float* packed) const {
  const lanes::WinogradPack transform = pack_kernel(form_);
  const int tile = tile_.channels;
  const int stored_inputs = stored_channels();
  alignas(64) std::array<float, kMostFrequencies * kLanes> values{};
  for (int begin = 0; begin < channels.count; begin += static_cast<int>(kLanes)) {
    const int stored = std::min(static_cast<int>(kLanes), channels.count - begin);
    const int count = std::clamp(shape_.out_channels - channels.first - begin, 0, static_cast<int>(kLanes));
    const float* first = weights.values + group * weights.group + (channels.first + begin) * weights.order.out;
    for (int c = 0; c < stored_inputs; ++c) {
      const float* from = first + (form_.pairs ? 2 * c : c) * weights.order.in;
      const bool both = form_.pairs && 2 * c + 1 < shape_.in_channels;
      if (count > 0) {
        transform({from, both ? from + weights.order.in : nullptr, weights.order.out, count, weights.order.flipped},
                  values.data());
      } else {
        values.fill(0);
      }
      int length = 0;
      for (int lane = 0; lane < stored; lane += length) {
        const int o = begin + lane;
        length = std::min(tile - o % tile, stored - lane);
        float* to = packed + (std::int64_t{o / tile} * stored_inputs + c) * tile + o % tile;
        copy_frequencies(values.data() + lane, to, length, packed_frequency(), form_.frequencies());
      }
    }
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

// An input channel, or a pair of them, of a band: [frequency][channel][tile][sample].
template <class Value>
void Winograd::transform_channel(const Value* x, const Blocks& blocks, const Part& part, int channel,
                                 float* transformed) const {
  const lanes::WinogradKernels<Raw<Value>>& kernels = kernels_of<Value>(form_);
  const std::int64_t in_plane = kLanes * std::int64_t{shape_.in_h} * shape_.in_w;
  const int first = form_.pairs ? 2 * channel : channel;
  const bool both = form_.pairs && first + 1 < shape_.in_channels;
  const Value* planes = x + part.group * (blocks.x_size / extent_.groups) + first * in_plane;
  each_row(band_, part.row, part.first, part.count, [&](int row, std::int64_t tile, std::int64_t block) {
    const Value* lower = planes + block * blocks.x_size;
    kernels.input(plane_, raw(lower), both ? raw(lower + in_plane) : nullptr, row,
                  transformed + kLanes * (std::int64_t{channel} * band_.tiles() + tile), input_frequency());
  });
}

// The products of the tiles of a band with the packed weights of some output channels, summed over input channels.
void Winograd::multiply(const float* transformed, const float* packed, int channels, float* products) const {
  ConvShape product{};
  product.in_channels = stored_channels();
  product.in_h = product.out_h = product.kernel_h = product.kernel_w = product.stride = 1;
  // Of missing blocks too: their results are not stored.
  product.in_w = product.out_w = band_.tiles();
  product.out_channels = channels;
  product.out_plane = product.out_row = band_.tiles();
  product.out_step = 1;
  for (int f = 0; f < form_.frequencies(); ++f) {
    tile_.sums(product, transformed + f * input_frequency(), packed + f * packed_frequency(), nullptr,
               products + f * output_frequency(channels), nullptr, 0, 1);
  }
}

template <class Value>
void Winograd::write_results(const float* products, Value* y, const Blocks& blocks, const Part& part,
                             const Channels& channels) const {
  const lanes::WinogradKernels<Raw<Value>>& kernels = kernels_of<Value>(form_);
  const float* bias = blocks.bias == nullptr ? nullptr : blocks.bias + part.group * shape_.out_channels;
  for (int i = 0; i < channels.count; ++i) {
    const int o = channels.first + i;
    Value* plane = y + part.group * (blocks.y_size / extent_.groups) + kLanes * o * shape_.out_plane;
    each_row(band_, part.row, part.first, part.count, [&](int row, std::int64_t tile, std::int64_t block) {
      kernels.output(plane_, products + kLanes * (std::int64_t{i} * band_.tiles() + tile),
                     output_frequency(channels.count), row, bias == nullptr ? 0.0F : bias[o], blocks.relu,
                     raw(plane + block * blocks.y_size));
    });
  }
}

template <class Value>
void Winograd::run_band(const Value* x, const Weights& weights, Value* y, const Blocks& blocks,
                        const Part& part) const {
  float* transformed = blocks.scratch + omp_get_thread_num() * blocks.scratch_size;
  float* products = transformed + form_.frequencies() * input_frequency();
  for (int c = 0; c < stored_channels(); ++c) transform_channel(x, blocks, part, c, transformed);
  multiply(transformed, weights.packed + part.group * form_.frequencies() * packed_frequency(), shape_.out_channels,
           products);
  write_results(products, y, blocks, part, {0, shape_.out_channels});
}

// All blocks as one band, whose output channels are divided among the threads.
template <class Value>
void Winograd::run_at_once(const Value* x, const Weights& weights, Value* y, const Blocks& blocks) const {
  float* transformed = blocks.scratch;
  const int step = packed_channels();
#pragma omp parallel num_threads(extent_.threads)
  for (std::int64_t g = 0; g < extent_.groups; ++g) {
    const Part part{g, 0, blocks.count, 0};
#pragma omp for schedule(static)
    for (int c = 0; c < stored_channels(); ++c) transform_channel(x, blocks, part, c, transformed);
    const int thread = omp_get_thread_num();
    float* packed = weights.packed + thread * form_.frequencies() * packed_frequency();
    float* products = blocks.scratch + thread * blocks.scratch_size + form_.frequencies() * input_frequency();
#pragma omp for schedule(static)
    for (int first = 0; first < shape_.out_channels; first += step) {
      const int count = std::min(step, shape_.out_channels - first);
      pack(weights, g, {first, static_cast<int>(round_up(count, tile_.channels))}, packed);
      multiply(transformed, packed, count, products);
      write_results(products, y, blocks, part, {first, count});
    }
  }
}

template <class Value>
void Winograd::run_blocks(const Value* x, const Weights& weights, Value* y, const Blocks& blocks) const {
  if (at_once()) return run_at_once(x, weights, y, blocks);
#pragma omp parallel for collapse(3) schedule(static) num_threads(extent_.threads)
  for (std::int64_t b = 0; b < blocks.count; b += band_.blocks) {
    for (std::int64_t g = 0; g < extent_.groups; ++g) {
      for (int band = 0; band < band_.bands; ++band) {
        run_band(x, weights, y, blocks,
                 {g, b, std::min<std::int64_t>(band_.blocks, blocks.count - b), band * band_.rows});
      }
    }
  }
}

template void Winograd::run_blocks(const float*, const Weights&, float*, const Blocks&) const;
template void Winograd::run_blocks(const Bf16*, const Weights&, Bf16*, const Blocks&) const;

}  // namespace ddp
