#include "backend/cpu/lanes_winograd.h"

#include <omp.h>

#include <algorithm>
#include <array>

#include "backend/cpu/lanes_shapes.h"
#include "backend/cpu/values.h"

namespace ddp {
namespace {

using lanes::ConvShape;

constexpr int kFrequencies = 16;
// The floats of a band's transformed values that stay in the second-level cache.
constexpr std::int64_t kMostScratch = 320 * 1024;
// Between the values of frequencies, so that they are not in the same set of a cache.
constexpr std::int64_t kApart = 5 * kLanes;

int tile_columns(const ConvShape& shape) { return (shape.out_w + 1) / 2; }

// Rows of tiles whose values fit; they divide all rows, so that all bands have the same size.
int rows_of_band(const ConvShape& shape) {
  const int all = (shape.out_h + 1) / 2;
  const std::int64_t row =
      kFrequencies * kLanes * std::int64_t{tile_columns(shape)} * (shape.in_channels + shape.out_channels);
  int rows = static_cast<int>(std::clamp<std::int64_t>(kMostScratch / row, 1, all));
  while (all % rows != 0) --rows;
  return rows;
}

}  // namespace

bool Winograd::supports(const ConvShape& shape) {
  return shape.kernel_h == 3 && shape.kernel_w == 3 && shape.stride == 1 && shape.out_step == 1;
}

int Winograd::columns(const ConvShape& shape) { return rows_of_band(shape) * tile_columns(shape); }

Winograd::Winograd(const ConvShape& shape, const lanes::ForwardTile& tile, bool pairs)
    : shape_(shape),
      tile_(tile),
      plane_{shape.in_h,  shape.in_w,  shape.pad_top,       shape.pad_left,
             shape.out_h, shape.out_w, tile_columns(shape), shape.out_row},
      pairs_(pairs),
      rows_(rows_of_band(shape)) {}

std::int64_t Winograd::packed_frequency() const {
  return round_up(shape_.out_channels, tile_.channels) * stored_channels() + kApart;
}
std::int64_t Winograd::input_frequency() const { return kLanes * tiles() * std::int64_t{stored_channels()} + kApart; }
std::int64_t Winograd::output_frequency() const {
  return kLanes * tiles() * std::int64_t{shape_.out_channels} + kApart;
}
std::int64_t Winograd::packed_elements() const { return kFrequencies * packed_frequency(); }
std::int64_t Winograd::scratch_elements() const { return kFrequencies * (input_frequency() + output_frequency()); }

void Winograd::pack(const float* weights, const Order& order, float* packed) const {
  const lanes::Kernels& all = lanes::kernels();
  const auto transform = pairs_ ? all.winograd_bf16.weights : all.winograd.weights;
  const int tile = tile_.channels;
  const int channels = stored_channels();
  const int first_of = pairs_ ? 2 : 1;
  std::array<float, kFrequencies * kLanes> values{};
  for (int o = 0; o < static_cast<int>(round_up(shape_.out_channels, tile)); ++o) {
    for (int c = 0; c < channels; c += kLanes) {
      const int count = std::min(static_cast<int>(kLanes), channels - c);
      const int upper = std::min(static_cast<int>(kLanes), shape_.in_channels / 2 - c);
      // Zero beyond the last channel.
      if (o < shape_.out_channels) {
        transform({weights + o * order.out + first_of * c * order.in, order.in, count, upper, order.flipped},
                  values.data());
      } else {
        values.fill(0.0F);
      }
      float* to = packed + (std::int64_t{o / tile} * channels + c) * tile + o % tile;
      for (std::size_t f = 0; f < kFrequencies; ++f, to += packed_frequency()) {
        for (int i = 0; i < count; ++i) to[std::int64_t{i} * tile] = values[f * kLanes + static_cast<std::size_t>(i)];
      }
    }
  }
}

template <class Value>
void Winograd::run(const Value* x, const float* packed, const float* bias, bool relu, Value* y, float* scratch,
                   int band) const {
  const lanes::Kernels& all = lanes::kernels();
  const lanes::WinogradKernels<Raw<Value>>& kernels = of_values<Value>(all.winograd, all.winograd_bf16);
  const int width = plane_.tile_columns;
  const int first = band * rows_;
  const std::int64_t in_plane = kLanes * std::int64_t{shape_.in_h} * shape_.in_w;
  float* u = scratch;
  float* m = scratch + kFrequencies * input_frequency();
  for (int c = 0; c < stored_channels(); ++c) {
    const Value* lower = x + (pairs_ ? 2 * c : c) * in_plane;
    const bool both = pairs_ && 2 * c + 1 < shape_.in_channels;
    for (int row = 0; row < rows_; ++row) {
      kernels.input(plane_, raw(lower), both ? raw(lower + in_plane) : nullptr, first + row,
                    u + kLanes * (std::int64_t{c} * tiles() + row * width), input_frequency());
    }
  }
  ConvShape product{};
  product.in_channels = stored_channels();
  product.in_h = product.out_h = product.kernel_h = product.kernel_w = product.stride = 1;
  product.in_w = product.out_w = tiles();
  product.out_channels = shape_.out_channels;
  product.out_plane = product.out_row = tiles();
  product.out_step = 1;
  for (int f = 0; f < kFrequencies; ++f) {
    tile_.sums(product, u + f * input_frequency(), packed + f * packed_frequency(), nullptr, m + f * output_frequency(),
               nullptr, 0, 1);
  }
  for (int o = 0; o < shape_.out_channels; ++o) {
    for (int row = 0; row < rows_; ++row) {
      kernels.output(plane_, m + kLanes * (std::int64_t{o} * tiles() + row * width), output_frequency(), first + row,
                     bias == nullptr ? 0.0F : bias[o], relu, raw(y + kLanes * o * shape_.out_plane));
    }
  }
}

template <class Value>
void Winograd::run_blocks(const Value* x, const float* packed, Value* y, const Blocks& blocks) const {
#pragma omp parallel for collapse(3) schedule(static) num_threads(blocks.threads)
  for (std::int64_t b = 0; b < blocks.count; ++b) {
    for (std::int64_t g = 0; g < blocks.groups; ++g) {
      for (int band = 0; band < bands(); ++band) {
        run(x + b * blocks.x_size + g * (blocks.x_size / blocks.groups), packed + g * packed_elements(),
            blocks.bias == nullptr ? nullptr : blocks.bias + g * shape_.out_channels, blocks.relu,
            y + b * blocks.y_size + g * (blocks.y_size / blocks.groups),
            blocks.scratch + omp_get_thread_num() * blocks.scratch_size, band);
      }
    }
  }
}

template void Winograd::run_blocks(const float*, const float*, float*, const Blocks&) const;
template void Winograd::run_blocks(const Bf16*, const float*, Bf16*, const Blocks&) const;
template void Winograd::run(const float*, const float*, const float*, bool, float*, float*, int) const;
template void Winograd::run(const Bf16*, const float*, const float*, bool, Bf16*, float*, int) const;

}  // namespace ddp
