#include "backend/cpu/lanes_winograd_gradient.h"

#include <omp.h>

#include <algorithm>

#include "backend/cpu/lanes_shapes.h"
#include "backend/cpu/values.h"

namespace ddp {
namespace {

constexpr int kSize = 4;
constexpr int kFrequencies = WinogradForm{.size = kSize}.frequencies();
// Channels that are transformed and then transposed into the lanes together.
constexpr int kTogether = 8;

template <class Value>
const lanes::WinogradGradientKernels<Raw<Value>>& gradient_kernels() {
  return of_values<Value>(lanes::kernels().winograd4_gradient, lanes::kernels().winograd4_gradient_bf16);
}

}  // namespace

WinogradGradient::WinogradGradient(const lanes::ConvShape& shape, std::int64_t groups, const lanes::OuterTile& tile,
                                   int threads)
    : shape_(shape),
      groups_(groups),
      tile_(tile),
      threads_(threads),
      plane_(winograd_plane(shape, kSize)),
      band_(winograd_band(shape, kSize)),
      width_(outer_width(shape, tile)) {}

std::int64_t WinogradGradient::sums_frequency() const {
  return round_up(std::int64_t{shape_.out_channels} * shape_.in_channels, kLanes) + kWinogradApart;
}
std::int64_t WinogradGradient::input_frequency() const { return kLanes * band_.tiles() * width_ + kWinogradApart; }
std::int64_t WinogradGradient::gradient_frequency() const {
  return kLanes * band_.tiles() * std::int64_t{shape_.out_channels} + kWinogradApart;
}
std::int64_t WinogradGradient::channels_frequency() const {
  return kLanes * band_.tiles() * std::int64_t{kTogether} + kWinogradApart;
}
// The places in memory: the sums of all groups, the transformed input and gradient, and the channels of each thread.
std::int64_t WinogradGradient::input_begin() const { return groups_ * kFrequencies * sums_frequency(); }
std::int64_t WinogradGradient::gradient_begin() const { return input_begin() + kFrequencies * input_frequency(); }
std::int64_t WinogradGradient::channels_begin() const { return gradient_begin() + kFrequencies * gradient_frequency(); }
std::int64_t WinogradGradient::floats() const {
  return channels_begin() + threads_ * kFrequencies * channels_frequency();
}

// The windows of the input, [frequency][tile][sample][channel].
template <class Value>
void WinogradGradient::transform_input(const Part<Value>& part, const Blocks& blocks, float* memory) const {
  const lanes::Kernels& all = lanes::kernels();
  const lanes::WinogradKernels<Raw<Value>>& kernels = of_values<Value>(all.winograd4, all.winograd4_bf16);
  const std::int64_t in_plane = kLanes * std::int64_t{shape_.in_h} * shape_.in_w;
  const std::int64_t channel_size = kLanes * std::int64_t{band_.tiles()};
  const std::int64_t tiles = part.count * band_.rows * band_.columns;
#pragma omp parallel for schedule(static) num_threads(threads_)
  for (std::int64_t first = 0; first < width_; first += kTogether) {
    float* planes = memory + channels_begin() + omp_get_thread_num() * kFrequencies * channels_frequency();
    const int count = static_cast<int>(std::clamp<std::int64_t>(shape_.in_channels - first, 0, kTogether));
    for (int c = 0; c < count; ++c) {
      for (std::int64_t b = 0; b < part.count; ++b) {
        for (int row = 0; row < band_.rows; ++row) {
          kernels.input(plane_, raw(part.x + b * blocks.x_size + (first + c) * in_plane), nullptr, part.row + row,
                        planes + c * channel_size + kLanes * (b * band_.rows + row) * band_.columns,
                        channels_frequency());
        }
      }
    }
    for (int f = 0; f < kFrequencies; ++f) {
      all.transpose_samples(planes + f * channels_frequency(), channel_size, count, tiles,
                            memory + input_begin() + f * input_frequency() + first, width_);
    }
  }
}

// The tiles of the results' gradient, [frequency][channel][tile][sample].
template <class Value>
void WinogradGradient::transform_gradient(const Part<Value>& part, const Blocks& blocks, float* memory) const {
  const auto kernel = gradient_kernels<Value>().gradient;
  const std::int64_t plane = kLanes * shape_.out_plane;
#pragma omp parallel for schedule(static) num_threads(threads_)
  for (int o = 0; o < shape_.out_channels; ++o) {
    float* to = memory + gradient_begin() + kLanes * std::int64_t{o} * band_.tiles();
    for (std::int64_t b = 0; b < part.count; ++b) {
      for (int row = 0; row < band_.rows; ++row) {
        kernel(plane_, raw(part.dy + b * blocks.dy_size + o * plane), part.row + row,
               to + kLanes * (b * band_.rows + row) * band_.columns, gradient_frequency());
      }
    }
  }
}

void WinogradGradient::multiply(std::int64_t group, std::int64_t count, bool accumulate, float* memory) const {
  lanes::ConvShape product{};
  product.in_channels = shape_.in_channels;
  product.out_channels = shape_.out_channels;
  product.in_h = product.out_h = product.kernel_h = product.kernel_w = product.stride = 1;
  product.in_w = product.out_w = static_cast<int>(count) * band_.rows * band_.columns;
  const int row_tiles = (shape_.out_channels + tile_.rows - 1) / tile_.rows;
  const int vector_tiles = outer_vector_tiles(shape_, tile_);
#pragma omp parallel for collapse(3) schedule(static) num_threads(threads_)
  for (int f = 0; f < kFrequencies; ++f) {
    for (int vector = 0; vector < vector_tiles; ++vector) {
      for (int row = 0; row < row_tiles; ++row) {
        tile_.kernel({product, memory + input_begin() + f * input_frequency(), 0, width_,
                      memory + gradient_begin() + f * gradient_frequency(), 0, band_.tiles(), 1,
                      memory + group * kFrequencies * sums_frequency() + f * sums_frequency(), accumulate},
                     row, vector);
      }
    }
  }
}

template <class Value>
void WinogradGradient::add(const Value* x, const Value* dy, const Blocks& blocks, float* memory) const {
  for (std::int64_t b = 0; b < blocks.count; b += band_.blocks) {
    const std::int64_t count = std::min<std::int64_t>(band_.blocks, blocks.count - b);
    for (std::int64_t g = 0; g < groups_; ++g) {
      for (int band = 0; band < band_.bands; ++band) {
        const Part<Value> part{x + b * blocks.x_size + g * (blocks.x_size / groups_),
                               dy + b * blocks.dy_size + g * (blocks.dy_size / groups_), count, band * band_.rows};
        transform_input(part, blocks, memory);
        transform_gradient(part, blocks, memory);
        multiply(g, count, blocks.accumulate || b > 0 || band > 0, memory);
      }
    }
  }
}

void WinogradGradient::finish(float* dw, const float* memory) const {
  const auto transform = gradient_kernels<float>().weights;
  const std::int64_t in = shape_.in_channels;
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
  for (std::int64_t g = 0; g < groups_; ++g) {
    for (int o = 0; o < shape_.out_channels; ++o) {
      const float* from = memory + g * kFrequencies * sums_frequency() + o * in;
      float* to = dw + (g * shape_.out_channels + o) * in * 9;
      for (std::int64_t c = 0; c < in; c += kLanes) {
        transform(from + c, sums_frequency(), static_cast<int>(std::min(kLanes, in - c)), to + 9 * c);
      }
    }
  }
}

template void WinogradGradient::add(const float*, const float*, const Blocks&, float*) const;
template void WinogradGradient::add(const Bf16*, const Bf16*, const Blocks&, float*) const;

}  // namespace ddp
