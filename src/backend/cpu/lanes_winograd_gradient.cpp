#include "backend/cpu/lanes_winograd_gradient.h"

#include <omp.h>

#include <algorithm>
#include <type_traits>

#include "backend/cpu/lanes_shapes.h"
#include "backend/cpu/values.h"

namespace ddp {
namespace {

// Channels that are transformed and then transposed into the lanes together.
constexpr int kTogether = 8;

template <class Value, class Factor>
const lanes::WinogradGradientKernels<Raw<Value>, Raw<Factor>>& kernels_of(int size) {
  const lanes::Kernels& all = lanes::kernels();
  if constexpr (std::is_same_v<Factor, Bf16>)
    return all.winograd2_gradient_pairs;
  else if constexpr (std::is_same_v<Value, Bf16>)
    return all.winograd4_gradient_bf16;
  else
    return size == 4 ? all.winograd4_gradient : all.winograd2_gradient;
}

template <class Factor>
Factor* factors_at(float* memory) {
  return static_cast<Factor*>(static_cast<void*>(memory));
}

}  // namespace

WinogradGradient::WinogradGradient(const lanes::ConvShape& shape, std::int64_t groups, const lanes::OuterTile& tile,
                                   WinogradForm form, int threads)
    : shape_(shape),
      groups_(groups),
      tile_(tile),
      form_(form),
      threads_(threads),
      plane_(winograd_plane(shape, form.size)),
      band_(winograd_band(shape, form.size)),
      width_(outer_width(shape, tile)) {}

std::int64_t WinogradGradient::sums_frequency() const {
  return round_up(std::int64_t{shape_.out_channels} * shape_.in_channels, kLanes) + kWinogradApart;
}
std::int64_t WinogradGradient::input_frequency() const {
  return floats_of(kLanes * band_.tiles() * width_) + kWinogradApart;
}
std::int64_t WinogradGradient::gradient_frequency() const {
  return kLanes * band_.tiles() * std::int64_t{shape_.out_channels} + kWinogradApart;
}
std::int64_t WinogradGradient::channels_frequency() const {
  return kLanes * band_.tiles() * std::int64_t{kTogether} + kWinogradApart;
}
// The places in memory: the sums of all groups, the transformed input and gradient, and the channels of each thread.
std::int64_t WinogradGradient::input_begin() const { return groups_ * form_.frequencies() * sums_frequency(); }
std::int64_t WinogradGradient::gradient_begin() const {
  return input_begin() + form_.frequencies() * input_frequency();
}
std::int64_t WinogradGradient::channels_begin() const {
  return gradient_begin() + floats_of(form_.frequencies() * gradient_frequency());
}
std::int64_t WinogradGradient::floats() const {
  return channels_begin() + floats_of(threads_ * form_.frequencies() * channels_frequency());
}

// The windows of the input, [frequency][tile][sample][channel], of pairs of samples if factors are bf16 numbers.
template <class Value, class Factor>
void WinogradGradient::transform_input(const Part<Value>& part, const Blocks& blocks, float* memory) const {
  const lanes::Kernels& all = lanes::kernels();
  const auto& transpose = of_values<Factor>(all.transpose_samples, all.transpose_pairs);
  const auto kernel = kernels_of<Value, Factor>(form_.size).input;
  const std::int64_t in_plane = kLanes * std::int64_t{shape_.in_h} * shape_.in_w;
  const std::int64_t channel_size = kLanes * std::int64_t{band_.tiles()};
  const std::int64_t tiles = part.count * band_.rows * band_.columns;
#pragma omp parallel for schedule(static) num_threads(threads_)
  for (std::int64_t first = 0; first < width_; first += kTogether) {
    Factor* planes = factors_at<Factor>(memory + channels_begin()) +
                     omp_get_thread_num() * form_.frequencies() * channels_frequency();
    const int count = static_cast<int>(std::clamp<std::int64_t>(shape_.in_channels - first, 0, kTogether));
    for (int c = 0; c < count; ++c) {
      for (std::int64_t b = 0; b < part.count; ++b) {
        for (int row = 0; row < band_.rows; ++row) {
          kernel(plane_, raw(part.x + b * blocks.x_size + (first + c) * in_plane), part.row + row,
                 raw(planes + c * channel_size + kLanes * (b * band_.rows + row) * band_.columns),
                 channels_frequency());
        }
      }
    }
    for (int f = 0; f < form_.frequencies(); ++f) {
      transpose(raw(planes + f * channels_frequency()), channel_size, count, tiles,
                memory + input_begin() + f * input_frequency() + first, width_);
    }
  }
}

// The tiles of the results' gradient, [frequency][channel][tile][sample].
template <class Value, class Factor>
void WinogradGradient::transform_gradient(const Part<Value>& part, const Blocks& blocks, float* memory) const {
  const auto kernel = kernels_of<Value, Factor>(form_.size).gradient;
  const std::int64_t plane = kLanes * shape_.out_plane;
#pragma omp parallel for schedule(static) num_threads(threads_)
  for (int o = 0; o < shape_.out_channels; ++o) {
    Factor* to = factors_at<Factor>(memory + gradient_begin()) + kLanes * std::int64_t{o} * band_.tiles();
    for (std::int64_t b = 0; b < part.count; ++b) {
      for (int row = 0; row < band_.rows; ++row) {
        kernel(plane_, raw(part.dy + b * blocks.dy_size + o * plane), part.row + row,
               raw(to + kLanes * (b * band_.rows + row) * band_.columns), gradient_frequency());
      }
    }
  }
}

template <class Factor>
void WinogradGradient::multiply(std::int64_t group, std::int64_t count, bool accumulate, float* memory) const {
  lanes::ConvShape product{};
  product.in_channels = shape_.in_channels;
  product.out_channels = shape_.out_channels;
  product.in_h = product.out_h = product.kernel_h = product.kernel_w = product.stride = 1;
  product.in_w = product.out_w = static_cast<int>(count) * band_.rows * band_.columns;
  const auto kernel = of_values<Factor>(tile_.kernel, tile_.pairs);
  const Factor* gradient = factors_at<Factor>(memory + gradient_begin());
  const int row_tiles = (shape_.out_channels + tile_.rows - 1) / tile_.rows;
  const int vector_tiles = outer_vector_tiles(shape_, tile_);
#pragma omp parallel for collapse(3) schedule(static) num_threads(threads_)
  for (int f = 0; f < form_.frequencies(); ++f) {
    for (int vector = 0; vector < vector_tiles; ++vector) {
      for (int row = 0; row < row_tiles; ++row) {
        kernel({product, memory + input_begin() + f * input_frequency(), 0, width_,
                raw(gradient + f * gradient_frequency()), 0, band_.tiles(), 1,
                memory + (group * form_.frequencies() + f) * sums_frequency(), accumulate},
               row, vector);
      }
    }
  }
}

template <class Value, class Factor>
void WinogradGradient::add_factors(const Value* x, const Value* dy, const Blocks& blocks, float* memory) const {
  for (std::int64_t b = 0; b < blocks.count; b += band_.blocks) {
    const std::int64_t count = std::min<std::int64_t>(band_.blocks, blocks.count - b);
    for (std::int64_t g = 0; g < groups_; ++g) {
      for (int band = 0; band < band_.bands; ++band) {
        const Part<Value> part{x + b * blocks.x_size + g * (blocks.x_size / groups_),
                               dy + b * blocks.dy_size + g * (blocks.dy_size / groups_), count, band * band_.rows};
        transform_input<Value, Factor>(part, blocks, memory);
        transform_gradient<Value, Factor>(part, blocks, memory);
        multiply<Factor>(g, count, blocks.accumulate || b > 0 || band > 0, memory);
      }
    }
  }
}

template <class Value>
void WinogradGradient::add(const Value* x, const Value* dy, const Blocks& blocks, float* memory) const {
  if constexpr (std::is_same_v<Value, Bf16>) {
    if (form_.pairs) return add_factors<Bf16, Bf16>(x, dy, blocks, memory);
  }
  add_factors<Value, float>(x, dy, blocks, memory);
}

void WinogradGradient::finish(float* dw, const float* memory) const {
  const auto transform = kernels_of<float, float>(form_.size).weights;
  const std::int64_t in = shape_.in_channels;
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
  for (std::int64_t g = 0; g < groups_; ++g) {
    for (int o = 0; o < shape_.out_channels; ++o) {
      const float* from = memory + g * form_.frequencies() * sums_frequency() + o * in;
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
