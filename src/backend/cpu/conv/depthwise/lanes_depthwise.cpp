#include <omp.h>

#include "backend/cpu/conv/depthwise/depthwise.h"
#include "backend/cpu/conv/depthwise/depthwise_planes.h"
#include "backend/cpu/conv/depthwise/plane_kernels.h"
#include "backend/cpu/device/planes.h"
#include "backend/cpu/isa/instruction_set.h"

LANES_BF16_TABLE(PlaneKernels, plane_kernels)

namespace ddp {
namespace {

// Value: the element of activations.
template <class Value>
class LanesDepthwise final : public Op {
 public:
  explicit LanesDepthwise(const ConvSpec& spec)
      : spec_(spec), threads_(omp_get_max_threads()), planes_(spec, workspace_, threads_) {}

  OpTraits traits() const override { return {.workspace_bytes = workspace_.bytes(), .backward_reads_inputs = {0}}; }

  void forward(const ForwardArguments& a) override {
    const float* factors = planes_.factors(a.parameters[0], a.workspace);
#pragma omp parallel for collapse(2) schedule(static) num_threads(threads_)
    for (std::int64_t b = 0; b < sample_blocks(a.active); ++b) {
      for (std::int64_t c = 0; c < channels(); ++c) {
        planes_.forward(factors + c * planes_.taps(), spec_.bias ? a.parameters[1][c] : 0.0F, whole(),
                        rows<const Value>(a.x(), c, planes_.x_plane())[b], rows<Value>(a.y, c, planes_.y_plane())[b]);
      }
    }
  }

  void backward(const BackwardArguments& a) override {
    const float* factors = planes_.factors(a.parameters[0], a.workspace);
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t c = 0; c < channels(); ++c) {
      const auto x = rows<const Value>(a.x(), c, planes_.x_plane());
      const auto dy = rows<const Value>(a.dy, c, planes_.y_plane());
      planes_.begin_weights(a.workspace);
      for (std::int64_t b = 0; b < sample_blocks(a.active); ++b) planes_.add_weights(whole(), x[b], dy[b], a.workspace);
      planes_.end_weights(a.parameter_gradients[0] + c * planes_.taps(), a.workspace);
      if (spec_.bias) a.parameter_gradients[1][c] = planes_.bias_gradient(dy, sample_blocks(a.active));
      if (!spec_.input_gradient) continue;
      planes_.pack(c, factors, a.workspace);
      const auto dx = rows<Value>(a.dx(), c, planes_.x_plane());
      for (std::int64_t b = 0; b < sample_blocks(a.active); ++b) planes_.data(c, whole(), dy[b], dx[b], a.workspace);
    }
    if (spec_.input_gradient) clear_rest(values<Value>(a.dx()), a.active, spec_.batch, spec_.input, Layout::lanes16);
  }

 private:
  std::int64_t channels() const { return spec_.output_channels; }
  PlaneBand whole() const { return planes_.band(0, planes_.rows()); }
  // The planes of a channel.
  template <class V, class From>
  ChannelRows<V> rows(From activations, std::int64_t channel, std::int64_t plane) const {
    return {values<Value>(activations) + channel * plane, channels() * plane};
  }

  ConvSpec spec_;
  int threads_;
  Workspace workspace_;
  DepthwisePlanes<Value> planes_;
};

}  // namespace

bool lanes_depthwise_supported(const ConvSpec& spec) {
  return spec.groups > 1 && spec.groups == spec.input.channels && spec.groups == spec.output_channels && !spec.relu;
}

std::unique_ptr<Op> make_lanes_depthwise(const ConvSpec& spec) { return std::make_unique<LanesDepthwise<float>>(spec); }

std::unique_ptr<Op> make_lanes_bf16_depthwise(const ConvSpec& spec) {
  return std::make_unique<LanesDepthwise<Bf16>>(spec);
}

}  // namespace ddp
