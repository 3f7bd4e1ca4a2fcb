// Depthwise convolution in lanes16, plane by plane: a plane is one channel of 16 samples.
//
//   DepthwisePlanes<float> planes(spec, workspace, threads);
//   const float* w = planes.factors(weights, memory);                       // [channels][taps]
//   const PlaneBand all = planes.band(0, planes.rows());
//   planes.forward(w + c * planes.taps(), bias, all, x, y);
//   planes.pack(c, w, memory);
//   planes.data(c, all, dy, dx, memory);
//   planes.begin_weights(memory);
//   planes.add_weights(all, x, dy, memory);
//   planes.end_weights(dw, memory);
//
// Bands of rows, one after the other, have the bits of whole planes.
//
// Planes are read in place: with few multiply-adds per value, a copy with a border would cost as much as the convolution.
// On bf16 activations forward and the data gradient multiply in fp32, in the same order; the weight gradient multiplies pairs
// of bf16 numbers, of bands of rows that are copied with a border.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/cpu/conv/depthwise/plane_kernels.h"
#include "backend/cpu/conv/tiles/conv_kernels.h"
#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/device/values.h"
#include "backend/cpu/norm/row_norm.h"
#include "backend/workspace.h"

namespace ddp {

// Rows [begin, end) of the output, and the rows of the input that their windows read.
struct PlaneBand {
  int begin, end;
  int first, last;
};

// Value: the element of activations.
template <class Value>
class DepthwisePlanes {
 public:
  // Adds what it needs to the operator's workspace, for so many threads.
  DepthwisePlanes(const ConvSpec& spec, Workspace& workspace, int threads)
      : spec_(spec),
        kernels_(lanes::plane_kernels()),
        bordered_(forward_shape(spec)),
        shape_(bordered_),
        phases_(data_phases(spec)),
        sums_(workspace.add<float>(threads * kLanes * taps())) {
    shape_.border_h = 0;
    shape_.border_w = 0;
    for (DataPhase& phase : phases_) phase.shape.border_w = 0;
    flipped_ = workspace.add<float>(spec.weights());
    if constexpr (kBf16) {
      while (band_rows_ < shape_.out_h && image_of(band_rows_ + 1) <= kMostImage) ++band_rows_;
      image_size_ = round_up(image_of(band_rows_), 2 * kLanes);
      rounded_ = workspace.add<float>(spec.weights());
      images_ = workspace.add<Bf16>(threads * image_size_);
    }
  }

  std::int64_t taps() const { return spec_.window.height * spec_.window.width; }
  // The values of a plane of the input and of the output.
  std::int64_t x_plane() const { return kLanes * spec_.input.height * spec_.input.width; }
  std::int64_t y_plane() const { return kLanes * shape_.out_plane; }

  // The weights as factors of products: rounded to bf16 on bf16 activations.
  const float* factors(const float* weights, std::byte* memory) const {
    if constexpr (!kBf16) {
      return weights;
    } else {
      float* to = rounded_.in(memory);
      std::transform(weights, weights + spec_.weights(), to, [](float w) { return float_of_bf16(bf16_bits(w)); });
      return to;
    }
  }

  int rows() const { return shape_.out_h; }
  PlaneBand band(int begin, int end) const {
    const int first = std::clamp(begin * shape_.stride - shape_.pad_top, 0, shape_.in_h);
    const int last = (end - 1) * shape_.stride - shape_.pad_top + shape_.kernel_h;
    return {begin, end, first, std::clamp(last, first, shape_.in_h)};
  }
  // The rows of bands whose input stays in a cache near the core.
  int band_rows() const {
    int rows = band_rows_;
    while (rows < shape_.out_h && input_of(rows + band_rows_) <= kMostBand) rows += band_rows_;
    return rows;
  }
  // The most values of the input that such a band reads.
  std::int64_t band_values() const { return input_of(band_rows()); }

  // With the factors of one channel. x begins with the band's first row, y with the plane's.
  void forward(const float* w, float bias, const PlaneBand& band, const Value* x, Value* y) const {
    run(part_of(shape_, band), w, bias, x, y + kLanes * shape_.out_row * band.begin);
  }

  // What data() needs of channel c; `factors` are those of all channels.
  void pack(std::int64_t c, const float* factors, std::byte* memory) const {
    float* flipped = flipped_.in(memory) + c * taps();
    for (const DataPhase& phase : phases_) {
      pack_data(spec_, phase, factors + c * taps(), 1, flipped);
      flipped += std::int64_t{phase.shape.kernel_h} * phase.shape.kernel_w;
    }
  }
  // The rows of a plane of the input's gradient that end the windows of a band: up to those of the next one.
  int data_begin(int output_row) const {
    return output_row == shape_.out_h ? shape_.in_h : std::min(output_row * shape_.stride, shape_.in_h);
  }
  // Reads the output's gradient up to this row.
  int data_reads(const PlaneBand& band) const { return std::min(band.end + shape_.pad_top, shape_.out_h); }
  void data(std::int64_t c, const PlaneBand& band, const Value* dy, Value* dx, std::byte* memory) const {
    const float* flipped = flipped_.in(memory) + c * taps();
    for (const DataPhase& phase : phases_) {
      lanes::ConvShape shape = phase.shape;
      const int begin = std::min(band.begin, shape.out_h);
      shape.out_h = (band.end == shape_.out_h ? shape.out_h : std::min(band.end, shape.out_h)) - begin;
      shape.pad_top -= begin;
      run(shape, flipped, 0.0F, dy, dx + kLanes * (phase.begin + shape.out_row * begin));
      flipped += std::int64_t{shape.kernel_h} * shape.kernel_w;
    }
  }

  // The gradient of a channel's weights is added up by a thread; x begins with the band's first row, dy with the plane's.
  void begin_weights(std::byte* memory) const { std::fill_n(sums(memory), kLanes * taps(), 0.0F); }
  void add_weights(const PlaneBand& band, const Value* x, const Value* dy, std::byte* memory) const {
    const Value* from = dy + y_row() * band.begin;
    if constexpr (!kBf16) {
      kernels_.weights({part_of(shape_, band), x, from, sums(memory)});
    } else {
      add_pairs(part_of(bordered_, band), x, from, sums(memory), memory);
    }
  }
  // dw [taps].
  void end_weights(float* dw, std::byte* memory) const {
    if constexpr (!kBf16) {
      kernels_.totals(sums(memory), static_cast<int>(taps()), dw);
    } else {
      std::copy_n(sums(memory), taps(), dw);
    }
  }

  float bias_gradient(ChannelRows<const Value> dy, std::int64_t blocks) const {
    float total = 0;
    for (std::int64_t b = 0; b < blocks; ++b) {
      if constexpr (kBf16) {
        total += lanes::gradient_kernels().sum_bf16(raw(dy[b]), shape_.out_plane);
      } else {
        total += lanes::gradient_kernels().sum(dy[b], shape_.out_plane);
      }
    }
    return total;
  }

 private:
  static constexpr bool kBf16 = std::is_same_v<Value, Bf16>;
  // The values of a band's image that stay in the first-level cache beside the gradient's rows.
  static constexpr std::int64_t kMostImage = 12 * 1024;
  // Floats of a band's input.
  static constexpr std::int64_t kMostBand = 16 * 1024;

  std::int64_t image_of(int rows) const { return band_elements(band_of(bordered_, 0, rows, false)); }

  std::int64_t input_of(int rows) const {
    const int read = (rows - 1) * shape_.stride + shape_.kernel_h;
    return kLanes * std::int64_t{shape_.in_w} * std::min(read, shape_.in_h);
  }
  std::int64_t y_row() const { return kLanes * std::int64_t{shape_.out_w}; }
  float* sums(std::byte* memory) const { return sums_.in(memory) + omp_get_thread_num() * kLanes * taps(); }

  // The convolution of a band's rows alone.
  static lanes::ConvShape part_of(lanes::ConvShape whole, const PlaneBand& band) {
    whole.pad_top += band.first - band.begin * whole.stride;
    whole.in_h = band.last - band.first;
    whole.out_h = band.end - band.begin;
    return whole;
  }

  void run(const lanes::ConvShape& shape, const float* w, float bias, const Value* x, Value* y) const {
    if constexpr (kBf16) {
      kernels_.forward_bf16(shape, raw(x), w, bias, raw(y));
    } else {
      kernels_.forward(shape, x, w, bias, y);
    }
  }

  // Products of pairs.
  // NOLINTNEXTLINE(readability-non-const-parameter): the kernel writes dw
  void add_pairs(const lanes::ConvShape& whole, const Value* x, const Value* dy, float* dw, std::byte* memory) const {
    Bf16* image = images_.in(memory) + omp_get_thread_num() * image_size_;
    for (int begin = 0; begin < whole.out_h; begin += band_rows_) {
      const Band band = band_of(whole, begin, std::min(begin + band_rows_, whole.out_h), false);
      copy_band(whole, band, x, image);
      const lanes::WeightGradient<std::uint16_t> task = {
          band.shape, raw(image), 0, raw(dy + y_row() * begin), y_plane(), 0, 1, dw, true};
      for (int tile = 0; tile * lanes::kPlaneTaps < taps(); ++tile) kernels_.pairs(task, 0, tile);
    }
  }

  ConvSpec spec_;
  const lanes::PlaneKernels& kernels_;
  lanes::ConvShape bordered_, shape_;
  std::vector<DataPhase> phases_;
  int band_rows_ = 1;
  std::int64_t image_size_ = 0;
  Workspace::Part<float> rounded_, flipped_, sums_;
  Workspace::Part<Bf16> images_;
};

}  // namespace ddp
