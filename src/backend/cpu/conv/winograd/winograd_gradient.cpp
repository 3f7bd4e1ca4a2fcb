#include "backend/cpu/conv/winograd/winograd_gradient.h"

#include <omp.h>

#include <algorithm>
#include <type_traits>

#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/device/planes.h"
#include "backend/cpu/device/values.h"
#include "base/error.h"

namespace ddp {
namespace {

// Channels that are transposed into the lanes together.
constexpr int kTogether = 8;
// The most channels whose sums are computed at once: with the factors, of six by six frequencies about the second-level cache.
constexpr int kScalarsAtOnce = 48;
constexpr int kLanesAtOnce = 64;
constexpr std::int64_t kAtOnceFrequency = kScalarsAtOnce * kLanesAtOnce + kWinogradApart;

template <class Value, class Factor>
const lanes::WinogradGradientKernels<Raw<Value>, Raw<Factor>>& kernels_of(WinogradForm form) {
  const lanes::WinogradGradientTable& table = lanes::winograd_gradient_kernels().forms[form.index];
  if constexpr (std::is_same_v<Factor, Bf16>)
    return table.pairs;
  else
    return of_values<Value>(table.fp32, table.bf16);
}

template <class Factor>
Factor* factors_at(float* memory) {
  return static_cast<Factor*>(static_cast<void*>(memory));
}
template <class Factor>
const Factor* factors_at(const float* memory) {
  return static_cast<const Factor*>(static_cast<const void*>(memory));
}

std::int64_t work_of(int in_lanes, int scalars, const lanes::OuterTile& tile) {
  return round_up(in_lanes, kLanes * tile.vectors) * round_up(scalars, tile.rows);
}

}  // namespace

std::int64_t WinogradGradient::work(const lanes::ConvShape& shape, const lanes::OuterTile& tile) {
  return std::min(work_of(shape.in_channels, shape.out_channels, tile),
                  work_of(shape.out_channels, shape.in_channels, tile));
}

WinogradGradient::WinogradGradient(const ConvSpec& spec, const WeightTile& tile, Element element, int threads)
    : shape_(forward_shape(spec)),
      groups_(spec.groups),
      blocks_(sample_blocks(spec.batch)),
      together_(gradient_pieces(shape_, element).together),
      x_group_(kLanes * spec.input.elements() / spec.groups),
      dy_group_(kLanes * spec.convolved().elements() / spec.groups),
      tile_(outer_tile(tile.index)),
      form_(winograd_form(tile.form, element)),
      threads_(threads),
      plane_(winograd_plane(shape_, form_.size)),
      band_(winograd_band(shape_, form_, blocks_, 1)),
      results_in_lanes_(work_of(shape_.out_channels, shape_.in_channels, tile_) <
                        work_of(shape_.in_channels, shape_.out_channels, tile_)),
      width_(round_up(results_in_lanes_ ? shape_.out_channels : shape_.in_channels, kLanes * tile_.vectors) + kLanes) {
  const lanes::ConvShape& shape = shape_;
  const int rows = form_.size * band_.rows;
  const int columns = form_.size * band_.columns;
  const auto covered = [&](int results) { return (results - 1) * form_.stride + form_.window; };
  const Factors input{shape.in_channels, shape.in_h,    shape.in_w,       -shape.pad_top,
                      -shape.pad_left,   covered(rows), covered(columns), form_.size * form_.stride};
  const Factors results{shape.out_channels, shape.out_h, shape.out_w, 0, 0, rows, columns, form_.size};
  lanes_ = results_in_lanes_ ? results : input;
  scalars_ = results_in_lanes_ ? input : results;
}

// The places in memory: the sums of all groups, both factors, and the transposed image of a band.
std::int64_t WinogradGradient::memory_elements() const {
  return image_begin() + kLanes * std::int64_t{lanes_.rows} * lanes_.columns * width_;
}

// The rows of a band of a block that its windows or tiles cover, zero outside of the planes: [row][column][sample][channel],
// of pairs of samples if values are bf16 numbers.
template <class Value>
void WinogradGradient::transpose(const Value* values, int row, float* image) const {
  const lanes::GradientKernels& all = lanes::gradient_kernels();
  const auto kernel = of_values<Value>(all.transpose_samples, all.transpose_pairs);
  const std::int64_t position = kLanes * width_ * static_cast<std::int64_t>(sizeof(Value)) / 4;
  const int first_row = lanes_.top + row * lanes_.step;
  const int first = std::max(0, -lanes_.left);
  const int count = std::min(lanes_.width - lanes_.left, lanes_.columns) - first;
#pragma omp parallel for schedule(static) num_threads(threads_)
  for (int r = 0; r < lanes_.rows; ++r) {
    float* to = image + r * lanes_.columns * position;
    const int y = first_row + r;
    if (y < 0 || y >= lanes_.height) {
      std::fill_n(to, lanes_.columns * position, 0.0F);
      continue;
    }
    std::fill_n(to, first * position, 0.0F);
    std::fill_n(to + (first + count) * position, (lanes_.columns - first - count) * position, 0.0F);
    const Value* from = values + kLanes * (std::int64_t{y} * lanes_.width + lanes_.left + first);
    for (std::int64_t c = 0; c < width_; c += kTogether) {
      kernel(raw(from + c * lanes_.plane()), lanes_.plane(),
             static_cast<int>(std::clamp<std::int64_t>(lanes_.channels - c, 0, kTogether)), count,
             to + first * position + c, width_);
    }
  }
}

// [frequency][tile][sample][channel], of pairs of samples if factors are bf16 numbers.
template <class Value, class Factor>
void WinogradGradient::transform_lanes(const Part<Value>& part, float* memory) const {
  const auto& kernels = kernels_of<Value, Factor>(form_);
  const auto kernel = results_in_lanes_ ? kernels.gradient_in_lanes : kernels.input_in_lanes;
  float* image = memory + image_begin();
  const std::int64_t tiles = floats_of(kLanes * band_.columns * width_);
  for (std::int64_t b = 0; b < part.count; ++b) {
    transpose(part.values + b * part.block, part.row, image);
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (int row = 0; row < band_.rows; ++row) {
      kernel({image, lanes_.columns, band_.columns, width_}, row,
             memory + lanes_begin() + (b * band_.rows + row) * tiles, lanes_frequency());
    }
  }
}

// [frequency][channel][tile][sample]
template <class Value, class Factor>
void WinogradGradient::transform_scalars(const Part<Value>& part, float* memory) const {
  const auto& kernels = kernels_of<Value, Factor>(form_);
  const auto kernel = results_in_lanes_ ? kernels.input : kernels.gradient;
#pragma omp parallel for schedule(static) num_threads(threads_)
  for (int c = 0; c < scalars_.channels; ++c) {
    Factor* to = factors_at<Factor>(memory + scalars_begin()) + kLanes * std::int64_t{c} * band_.tiles();
    for (std::int64_t b = 0; b < part.count; ++b) {
      for (int row = 0; row < band_.rows; ++row) {
        kernel(plane_, raw(part.values + b * part.block + c * scalars_.plane()), part.row + row,
               raw(to + kLanes * (b * band_.rows + row) * band_.columns), scalars_frequency());
      }
    }
  }
}

std::int64_t WinogradGradient::sums_elements() const {
  if (!at_once()) return groups_ * form_.frequencies() * sums_frequency();
  return threads_ * form_.frequencies() * kAtOnceFrequency;
}

template <class Factor>
void WinogradGradient::multiply(int f, const Sums& sums, std::int64_t count, bool accumulate,
                                const float* memory) const {
  const auto kernel = of_values<Factor>(tile_.winograd, tile_.winograd_pairs);
  const Factor* scalars = factors_at<Factor>(memory + scalars_begin()) + f * scalars_frequency();
  const std::int64_t plane = kLanes * band_.tiles();
  kernel({memory + lanes_begin() + f * lanes_frequency() + sums.lane, width_, sums.lanes,
          raw(scalars + plane * sums.scalar), plane, sums.scalars, count * band_.rows * band_.columns,
          sums.first + f * sums.frequency, accumulate});
}

template <class Factor>
void WinogradGradient::multiply_all(std::int64_t group, std::int64_t count, bool accumulate, float* memory) const {
#pragma omp parallel for schedule(static) num_threads(threads_)
  for (int f = 0; f < form_.frequencies(); ++f) {
    multiply<Factor>(f,
                     {0, scalars_.channels, 0, static_cast<int>(lanes_width()),
                      memory + group * form_.frequencies() * sums_frequency(), sums_frequency()},
                     count, accumulate, memory);
  }
}

template <class Factor>
void WinogradGradient::multiply_at_once(std::int64_t group, std::int64_t count, float* dw, float* memory) const {
  // Whole tiles.
  const int rows = kScalarsAtOnce / tile_.rows * tile_.rows;
  const int vectors = kLanesAtOnce / static_cast<int>(kLanes) / tile_.vectors * tile_.vectors;
  const int width = vectors * static_cast<int>(kLanes);
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
  for (int s = 0; s < scalars_.channels; s += rows) {
    for (int l = 0; l < static_cast<int>(lanes_width()); l += width) {
      const Sums sums{s,
                      std::min(rows, scalars_.channels - s),
                      l,
                      std::min(width, static_cast<int>(lanes_width()) - l),
                      memory + omp_get_thread_num() * form_.frequencies() * kAtOnceFrequency,
                      kAtOnceFrequency};
      for (int f = 0; f < form_.frequencies(); ++f) multiply<Factor>(f, sums, count, false, memory);
      finish(group, sums, dw);
    }
  }
}

template <class Value, class Factor>
void WinogradGradient::add_factors(const Value* x, const Value* dpre, const GradientBlocks& blocks) const {
  if (at_once() && !(blocks.is_first && blocks.is_last)) {
    throw Error(ExitCode::internal, "Winograd's weight gradient got only a part of the samples");
  }
  float* const memory = blocks.memory;
  const std::int64_t x_block = groups_ * x_group_;
  const std::int64_t dy_block = groups_ * dy_group_;
  for (std::int64_t b = 0; b < blocks.count; b += band_.blocks) {
    const std::int64_t count = std::min<std::int64_t>(band_.blocks, blocks.count - b);
    for (std::int64_t g = 0; g < groups_; ++g) {
      for (int band = 0; band < band_.bands; ++band) {
        Part<Value> lanes{x + b * x_block + g * x_group_, x_block, count, band * band_.rows};
        Part<Value> scalars{dpre + b * dy_block + g * dy_group_, dy_block, count, band * band_.rows};
        if (results_in_lanes_) std::swap(lanes, scalars);
        transform_lanes<Value, Factor>(lanes, memory);
        transform_scalars<Value, Factor>(scalars, memory);
        if (at_once()) {
          multiply_at_once<Factor>(g, count, blocks.dw, memory);
        } else {
          multiply_all<Factor>(g, count, !blocks.is_first || b > 0 || band > 0, memory);
        }
      }
    }
  }
  if (blocks.is_last && !at_once()) finish_all(blocks.dw, memory);
}

void WinogradGradient::add(ConstActivations x, ConstActivations dpre, const GradientBlocks& blocks) const {
  if (x.element() == Element::fp32) return add_factors<float, float>(x.fp32(), dpre.fp32(), blocks);
  if (form_.pairs) return add_factors<Bf16, Bf16>(x.bf16(), dpre.bf16(), blocks);
  add_factors<Bf16, float>(x.bf16(), dpre.bf16(), blocks);
}

void WinogradGradient::finish(std::int64_t group, const Sums& sums, float* dw) const {
  const auto transform = lanes::winograd_gradient_kernels().forms[form_.index].weights;
  const std::int64_t taps = std::int64_t{form_.window} * form_.window;
  // Weights between neighbouring channels in the lanes, and between the others.
  const std::int64_t step = results_in_lanes_ ? shape_.in_channels * taps : taps;
  const std::int64_t other = results_in_lanes_ ? taps : shape_.in_channels * taps;
  dw += group * std::int64_t{shape_.out_channels} * shape_.in_channels * taps;
  for (int s = 0; s < sums.scalars; ++s) {
    const float* from = sums.first + std::int64_t{s} * sums.lanes;
    for (int c = 0; c < sums.lanes; c += static_cast<int>(kLanes)) {
      const int count = std::min(static_cast<int>(kLanes), lanes_.channels - sums.lane - c);
      transform(from + c, sums.frequency, count, dw + (sums.scalar + s) * other + (sums.lane + c) * step, step);
    }
  }
}

void WinogradGradient::finish_all(float* dw, float* memory) const {
  const auto lanes = static_cast<int>(lanes_width());
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
  for (std::int64_t g = 0; g < groups_; ++g) {
    for (int s = 0; s < scalars_.channels; ++s) {
      finish(g,
             {s, 1, 0, lanes, memory + g * form_.frequencies() * sums_frequency() + std::int64_t{s} * lanes,
              sums_frequency()},
             dw);
    }
  }
}

}  // namespace ddp
