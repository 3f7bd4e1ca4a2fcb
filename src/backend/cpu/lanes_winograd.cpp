#include "backend/cpu/lanes_winograd.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstring>

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
// With 36 frequencies a band has at least so many tiles, if need be of several blocks, since each reads all weights.
constexpr int kEnoughTiles = 8;
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
  band.blocks = band.bands > 1 ? 1 : std::clamp(kEnoughTiles / (all * columns), 1, kMostTogether);
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

Winograd::Winograd(const ConvShape& shape, const lanes::ForwardTile& tile, WinogradForm form)
    : shape_(shape),
      tile_(tile),
      form_(form),
      plane_(winograd_plane(shape, form.size)),
      band_(winograd_band(shape, form.size)) {}

std::int64_t Winograd::packed_frequency() const {
  return round_up(shape_.out_channels, tile_.channels) * stored_channels() + kWinogradApart;
}
std::int64_t Winograd::input_frequency() const {
  return kLanes * band_.tiles() * std::int64_t{stored_channels()} + kWinogradApart;
}
std::int64_t Winograd::output_frequency() const {
  return kLanes * band_.tiles() * std::int64_t{shape_.out_channels} + kWinogradApart;
}
std::int64_t Winograd::packed_elements() const { return form_.frequencies() * packed_frequency(); }
std::int64_t Winograd::scratch_elements() const {
  return form_.frequencies() * (input_frequency() + output_frequency());
}

void Winograd::pack(const float* weights, const Order& order, float* packed) const {
#pragma omp parallel for schedule(static)
  for (int o = 0; o < static_cast<int>(round_up(shape_.out_channels, tile_.channels)); o += kLanes) {
    pack_channels(weights, order, o, packed);
  }
}

// The weights of 16 output channels from `first` on, zero beyond the last one.
void Winograd::pack_channels(const float* weights, const Order& order, int first, float* packed) const {
  const lanes::WinogradPack transform = pack_kernel(form_);
  const int tile = tile_.channels;
  const int channels = stored_channels();
  const int stored = std::min(static_cast<int>(kLanes), static_cast<int>(round_up(shape_.out_channels, tile)) - first);
  const int count = std::clamp(shape_.out_channels - first, 0, static_cast<int>(kLanes));
  alignas(64) std::array<float, kMostFrequencies * kLanes> values{};
  for (int c = 0; c < channels; ++c) {
    const float* from = weights + first * order.out + (form_.pairs ? 2 * c : c) * order.in;
    const bool both = form_.pairs && 2 * c + 1 < shape_.in_channels;
    if (count > 0) transform({from, both ? from + order.in : nullptr, order.out, count, order.flipped}, values.data());
    int length = 0;
    for (int lane = 0; lane < stored; lane += length) {
      const int o = first + lane;
      length = std::min(tile - o % tile, stored - lane);
      float* to = packed + (std::int64_t{o / tile} * channels + c) * tile + o % tile;
      copy_frequencies(values.data() + lane, to, length, packed_frequency(), form_.frequencies());
    }
  }
}

template <class Value>
void Winograd::run(const Value* x, const float* packed, Value* y, const Blocks& blocks, const Part& part,
                   float* scratch) const {
  const lanes::WinogradKernels<Raw<Value>>& kernels = kernels_of<Value>(form_);
  const std::int64_t in_plane = kLanes * std::int64_t{shape_.in_h} * shape_.in_w;
  const int tiles = band_.tiles();
  float* u = scratch;
  float* m = scratch + form_.frequencies() * input_frequency();
  // f(row of tiles, its first tile, block) for the rows of the band.
  const auto each_row = [&](auto f) {
    for (std::int64_t b = 0; b < part.count; ++b) {
      for (int row = 0; row < band_.rows; ++row) {
        f(part.row + row, (b * band_.rows + row) * band_.columns, part.first + b);
      }
    }
  };
  for (int c = 0; c < stored_channels(); ++c) {
    const Value* channel = x + part.group * (blocks.x_size / blocks.groups) + (form_.pairs ? 2 * c : c) * in_plane;
    const bool both = form_.pairs && 2 * c + 1 < shape_.in_channels;
    each_row([&](int row, std::int64_t tile, std::int64_t block) {
      const Value* lower = channel + block * blocks.x_size;
      kernels.input(plane_, raw(lower), both ? raw(lower + in_plane) : nullptr, row,
                    u + kLanes * (std::int64_t{c} * tiles + tile), input_frequency());
    });
  }
  ConvShape product{};
  product.in_channels = stored_channels();
  product.in_h = product.out_h = product.kernel_h = product.kernel_w = product.stride = 1;
  // Of missing blocks too: their results are not stored.
  product.in_w = product.out_w = tiles;
  product.out_channels = shape_.out_channels;
  product.out_plane = product.out_row = tiles;
  product.out_step = 1;
  for (int f = 0; f < form_.frequencies(); ++f) {
    tile_.sums(product, u + f * input_frequency(), packed + f * packed_frequency(), nullptr, m + f * output_frequency(),
               nullptr, 0, 1);
  }
  const float* bias = blocks.bias == nullptr ? nullptr : blocks.bias + part.group * shape_.out_channels;
  for (int o = 0; o < shape_.out_channels; ++o) {
    Value* channel = y + part.group * (blocks.y_size / blocks.groups) + kLanes * o * shape_.out_plane;
    each_row([&](int row, std::int64_t tile, std::int64_t block) {
      kernels.output(plane_, m + kLanes * (std::int64_t{o} * tiles + tile), output_frequency(), row,
                     bias == nullptr ? 0.0F : bias[o], blocks.relu, raw(channel + block * blocks.y_size));
    });
  }
}

template <class Value>
void Winograd::run_blocks(const Value* x, const float* packed, Value* y, const Blocks& blocks) const {
#pragma omp parallel for collapse(3) schedule(static) num_threads(blocks.threads)
  for (std::int64_t b = 0; b < blocks.count; b += band_.blocks) {
    for (std::int64_t g = 0; g < blocks.groups; ++g) {
      for (int band = 0; band < band_.bands; ++band) {
        run(x, packed + g * packed_elements(), y, blocks,
            {g, b, std::min<std::int64_t>(band_.blocks, blocks.count - b), band * band_.rows},
            blocks.scratch + omp_get_thread_num() * blocks.scratch_size);
      }
    }
  }
}

template void Winograd::run_blocks(const float*, const float*, float*, const Blocks&) const;
template void Winograd::run_blocks(const Bf16*, const float*, Bf16*, const Blocks&) const;

}  // namespace ddp
