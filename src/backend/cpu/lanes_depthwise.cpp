#include <algorithm>

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

}  // namespace

bool lanes_depthwise_supported(const ConvSpec& spec) {
  return spec.groups > 1 && spec.groups == spec.input.channels && spec.groups == spec.output_channels && !spec.relu;
}

std::unique_ptr<Op> make_lanes_depthwise(const ConvSpec& spec) { return std::make_unique<LanesDepthwise>(spec); }

}  // namespace ddp
