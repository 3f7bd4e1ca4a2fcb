#include <omp.h>

#include <algorithm>

#include "backend/arithmetic.h"
#include "backend/cpu/lanes_conv.h"
#include "backend/cpu/lanes_kernels.h"
#include "backend/cpu/lanes_shapes.h"
#include "backend/cpu/planes.h"
#include "backend/workspace.h"

namespace ddp {
namespace {

using lanes::ConvShape;

// The planes are read in place: with few multiply-adds per value, a copy with a border would cost as much as the
// convolution.
class LanesDepthwise final : public Op {
 public:
  explicit LanesDepthwise(const ConvSpec& spec)
      : spec_(spec), kernels_(lanes::kernels()), shape_(forward_shape(spec)), phases_(data_phases(spec)) {
    shape_.border_h = 0;
    shape_.border_w = 0;
    Workspace layout;
    flipped_ = layout.add<float>(spec.weights());
    workspace_bytes_ = layout.bytes();
  }

  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  bool backward_reads_x() const override { return true; }

  void forward(const ForwardArguments& a) override {
    const std::int64_t channels = spec_.output_channels;
#pragma omp parallel for collapse(2) schedule(static)
    for (std::int64_t b = 0; b < blocks(a.active); ++b) {
      for (std::int64_t c = 0; c < channels; ++c) {
        kernels_.plane_forward(shape_, a.x.fp32() + (b * channels + c) * x_plane(), a.parameters[0] + c * taps(),
                               spec_.bias ? a.parameters[1][c] : 0.0F, a.y.fp32() + (b * channels + c) * y_plane());
      }
    }
  }

  void backward(const BackwardArguments& a) override {
    const std::int64_t channels = spec_.output_channels;
    float* flipped = flipped_.in(a.workspace);
#pragma omp parallel for schedule(static)
    for (std::int64_t c = 0; c < channels; ++c) {
      parameter_gradients(a, c);
      if (spec_.input_gradient) data_gradient(a, c, flipped + c * taps());
    }
    if (spec_.input_gradient) clear_rest(a.dx.fp32(), a.active, spec_.batch, spec_.input, Layout::lanes16);
  }

 private:
  static std::int64_t blocks(std::int64_t samples) { return (samples + kLanes - 1) / kLanes; }
  std::int64_t taps() const { return spec_.window.height * spec_.window.width; }
  std::int64_t x_plane() const { return kLanes * spec_.input.height * spec_.input.width; }
  std::int64_t y_plane() const { return kLanes * shape_.out_plane; }

  void parameter_gradients(const BackwardArguments& a, std::int64_t c) const {
    const std::int64_t channels = spec_.output_channels;
    kernels_.plane_weights({shape_, a.x.fp32() + c * x_plane(), channels * x_plane(), a.dy.fp32() + c * y_plane(),
                            channels * y_plane(), static_cast<int>(blocks(a.active)),
                            a.parameter_gradients[0] + c * taps()});
    if (!spec_.bias) return;
    float total = 0;
    for (std::int64_t b = 0; b < blocks(a.active); ++b) {
      total += kernels_.sum(a.dy.fp32() + (b * channels + c) * y_plane(), shape_.out_plane);
    }
    a.parameter_gradients[1][c] = total;
  }

  void data_gradient(const BackwardArguments& a, std::int64_t c, float* flipped) const {
    const std::int64_t channels = spec_.output_channels;
    for (const DataPhase& phase : phases_) {
      pack_data(spec_, phase, a.parameters[0] + c * taps(), 1, flipped);
      ConvShape shape = phase.shape;
      shape.border_w = 0;
      for (std::int64_t b = 0; b < blocks(a.active); ++b) {
        kernels_.plane_forward(shape, a.dy.fp32() + (b * channels + c) * y_plane(), flipped, 0.0F,
                               a.dx.fp32() + (b * channels + c) * x_plane() + kLanes * phase.begin);
      }
    }
  }

  ConvSpec spec_;
  const lanes::Kernels& kernels_;
  ConvShape shape_;
  std::vector<DataPhase> phases_;
  Workspace::Part<float> flipped_;
  std::size_t workspace_bytes_ = 0;
};

// On bf16 activations. Forward and the data gradient multiply in fp32, in the order of the operator above; the weight
// gradient multiplies pairs of bf16 numbers, of bands of rows that are copied with a border.
class LanesBf16Depthwise final : public Op {
 public:
  explicit LanesBf16Depthwise(const ConvSpec& spec)
      : spec_(spec),
        kernels_(lanes::kernels()),
        bordered_(forward_shape(spec)),
        shape_(bordered_),
        phases_(data_phases(spec)),
        threads_(omp_get_max_threads()) {
    shape_.border_h = 0;
    shape_.border_w = 0;
    for (DataPhase& phase : phases_) phase.shape.border_w = 0;
    while (band_rows_ < shape_.out_h && image_of(band_rows_ + 1) <= kMostImage) ++band_rows_;
    image_size_ = round_up(image_of(band_rows_), 2 * kLanes);
    Workspace layout;
    rounded_ = layout.add<float>(spec.weights());
    flipped_ = layout.add<float>(spec.weights());
    images_ = layout.add<Bf16>(threads_ * image_size_);
    workspace_bytes_ = layout.bytes();
  }

  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  bool backward_reads_x() const override { return true; }

  void forward(const ForwardArguments& a) override {
    const std::int64_t channels = spec_.output_channels;
    const float* weights = rounded_weights(a.parameters[0], a.workspace);
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
    for (std::int64_t b = 0; b < blocks(a.active); ++b) {
      for (std::int64_t c = 0; c < channels; ++c) {
        kernels_.plane_forward_bf16(shape_, &a.x.bf16()[(b * channels + c) * x_plane()].bits, weights + c * taps(),
                                    spec_.bias ? a.parameters[1][c] : 0.0F,
                                    &a.y.bf16()[(b * channels + c) * y_plane()].bits);
      }
    }
  }

  void backward(const BackwardArguments& a) override {
    const std::int64_t channels = spec_.output_channels;
    const float* weights = rounded_weights(a.parameters[0], a.workspace);
    float* flipped = flipped_.in(a.workspace);
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t c = 0; c < channels; ++c) {
      parameter_gradients(a, c);
      if (spec_.input_gradient) data_gradient(a, c, weights + c * taps(), flipped + c * taps());
    }
    if (spec_.input_gradient) clear_rest(a.dx.bf16(), a.active, spec_.batch, spec_.input, Layout::lanes16);
  }

 private:
  // The values of a band's image that stay in the first-level cache beside the gradient's rows.
  static constexpr std::int64_t kMostImage = 12 * 1024;

  static std::int64_t blocks(std::int64_t samples) { return (samples + kLanes - 1) / kLanes; }
  std::int64_t taps() const { return spec_.window.height * spec_.window.width; }
  std::int64_t x_plane() const { return kLanes * spec_.input.height * spec_.input.width; }
  std::int64_t y_plane() const { return kLanes * shape_.out_plane; }
  std::int64_t image_of(int rows) const { return band_elements(band_of(bordered_, 0, rows, false)); }

  // The factors of products are bf16.
  const float* rounded_weights(const float* from, std::byte* workspace) const {
    float* to = rounded_.in(workspace);
    std::transform(from, from + spec_.weights(), to, [](float w) { return float_of_bf16(bf16_bits(w)); });
    return to;
  }

  void parameter_gradients(const BackwardArguments& a, std::int64_t c) const {
    const std::int64_t channels = spec_.output_channels;
    float* dw = a.parameter_gradients[0] + c * taps();
    Bf16* image = images_.in(a.workspace) + omp_get_thread_num() * image_size_;
    std::fill_n(dw, taps(), 0.0F);
    float bias = 0;
    for (std::int64_t b = 0; b < blocks(a.active); ++b) {
      const Bf16* x = a.x.bf16() + (b * channels + c) * x_plane();
      const Bf16* dy = a.dy.bf16() + (b * channels + c) * y_plane();
      for (int begin = 0; begin < shape_.out_h; begin += band_rows_) {
        const Band band = band_of(bordered_, begin, std::min(begin + band_rows_, shape_.out_h), false);
        copy_band(bordered_, band, x, image);
        const lanes::WeightGradient<std::uint16_t> task = {
            band.shape, &image->bits, 0,   &dy[kLanes * begin * std::int64_t{shape_.out_w}].bits, y_plane(), 0,
            1,          dw,           true};
        for (int tile = 0; tile * lanes::kPlaneTaps < taps(); ++tile) kernels_.plane_pairs(task, 0, tile);
      }
      if (spec_.bias) bias += kernels_.sum_bf16(&dy->bits, shape_.out_plane);
    }
    if (spec_.bias) a.parameter_gradients[1][c] = bias;
  }

  void data_gradient(const BackwardArguments& a, std::int64_t c, const float* weights, float* flipped) const {
    const std::int64_t channels = spec_.output_channels;
    for (const DataPhase& phase : phases_) {
      pack_data(spec_, phase, weights, 1, flipped);
      for (std::int64_t b = 0; b < blocks(a.active); ++b) {
        kernels_.plane_forward_bf16(phase.shape, &a.dy.bf16()[(b * channels + c) * y_plane()].bits, flipped, 0.0F,
                                    &a.dx.bf16()[(b * channels + c) * x_plane() + kLanes * phase.begin].bits);
      }
    }
  }

  ConvSpec spec_;
  const lanes::Kernels& kernels_;
  ConvShape bordered_, shape_;
  std::vector<DataPhase> phases_;
  int threads_;
  int band_rows_ = 1;
  std::int64_t image_size_ = 0;
  Workspace::Part<float> rounded_, flipped_;
  Workspace::Part<Bf16> images_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace

bool lanes_depthwise_supported(const ConvSpec& spec) {
  return spec.groups > 1 && spec.groups == spec.input.channels && spec.groups == spec.output_channels && !spec.relu;
}

std::unique_ptr<Op> make_lanes_depthwise(const ConvSpec& spec) { return std::make_unique<LanesDepthwise>(spec); }

std::unique_ptr<Op> make_lanes_bf16_depthwise(const ConvSpec& spec) {
  return std::make_unique<LanesBf16Depthwise>(spec);
}

}  // namespace ddp
