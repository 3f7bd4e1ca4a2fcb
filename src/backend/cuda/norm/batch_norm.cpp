#include "backend/cuda/device/check.h"
#include "backend/cuda/device/element.h"
#include "backend/cuda/device/traffic.h"
#include "backend/cuda/norm/norm.h"
#include "backend/workspace.h"
#include "base/error.h"

namespace ddp::cuda {
namespace {

// The kernels process only active samples. The results of the others are set to zero, so that they stay finite through
// any number of layers.
class CudaBatchNorm final : public Op {
 public:
  CudaBatchNorm(const CudaContext& context, const BatchNormSpec& spec, Layout layout)
      : context_(context),
        spec_(spec),
        layout_(layout),
        means_(saved_.add<float>(2 * spec.shape.channels)),
        mask_(saved_.add<std::uint8_t>(batch_norm_mask_bytes(context.element(), spec, layout))),
        partial_sums_(space_.add<float>(batch_norm_partial_sums(context.element(), spec, layout))) {
    check(batch_norm_takes(context.element(), spec, layout), ExitCode::preflight,
          "a batch normalisation of {} channels exceeds what the kernels support; use --device cpu",
          spec.shape.channels);
  }

  OpTraits traits() const override {
    return {.saved_bytes = saved_.bytes(),
            .workspace_bytes = space_.bytes(),
            .backward_reads_inputs = {0},
            .traffic = traffic()};
  }

  void forward(const ForwardArguments& a) override {
    DDP_ASSERT(is_aligned(a.x().data()) && is_aligned(a.inputs[1].data()) && is_aligned(a.y.data()));
    zero_inactive(a.y, a.active);
    if (a.active == 0) return;
    BatchNormForward arguments;
    arguments.samples = a.active;
    arguments.x = a.x().data();
    arguments.x2 = spec_.add ? a.inputs[1].data() : nullptr;
    arguments.y = a.y.data();
    arguments.weight = a.parameters[0];
    arguments.bias = a.parameters[1];
    arguments.input_bias = spec_.input_bias ? a.parameters[2] : nullptr;
    arguments.statistics = a.statistics;
    arguments.streams = streams(a.active);
    if (a.training) {
      arguments.means = means_.in(a.saved);
      if (has_mask()) arguments.mask = mask_.in(a.saved);
      arguments.partial_sums = partial_sums_.in(a.workspace);
      if (spec_.frozen) {
        batch_norm_keep(context_.stream, spec_, arguments);
      } else {
        batch_norm_moments(context_.stream, context_.element(), spec_, layout_, arguments);
      }
    }
    batch_norm_normalize(context_.stream, context_.element(), spec_, layout_, arguments);
  }

  void backward(const BackwardArguments& a) override {
    DDP_ASSERT(is_aligned(a.dy.data()) && is_aligned(a.dx().data()) && is_aligned(a.input_gradients[1].data()));
    zero_inactive(a.dx(), a.active);
    if (spec_.add) zero_inactive(a.input_gradients[1], a.active);
    if (a.active == 0) {
      const std::size_t bytes = static_cast<std::size_t>(spec_.shape.channels) * sizeof(float);
      for (float* gradient : a.parameter_gradients) {
        if (gradient != nullptr) DDP_CUDA(cudaMemsetAsync(gradient, 0, bytes, context_.stream));
      }
      return;
    }
    BatchNormBackward arguments;
    arguments.samples = a.active;
    arguments.x = a.x().data();
    arguments.dy = a.dy.data();
    arguments.dx = a.dx().data();
    arguments.dx2 = spec_.add ? a.input_gradients[1].data() : nullptr;
    arguments.weight = a.parameters[0];
    arguments.bias = a.parameters[1];
    arguments.weight_gradient = a.parameter_gradients[0];
    arguments.bias_gradient = a.parameter_gradients[1];
    arguments.input_bias_gradient = spec_.input_bias ? a.parameter_gradients[2] : nullptr;
    arguments.means = means_.in(a.saved);
    if (has_mask()) arguments.mask = mask_.in(a.saved);
    arguments.partial_sums = partial_sums_.in(a.workspace);
    arguments.streams = streams(a.active);
    batch_norm_sums(context_.stream, context_.element(), spec_, layout_, arguments);
    batch_norm_input_gradient(context_.stream, context_.element(), spec_, layout_, arguments);
  }

 private:
  OpTraffic traffic() const {
    const double x =
        static_cast<double>(bytes_of(context_.element())) * static_cast<double>(spec_.batch * spec_.shape.elements());
    const double mask = static_cast<double>(batch_norm_mask_bytes(context_.element(), spec_, layout_));
    const double sums =
        sizeof(float) * static_cast<double>(batch_norm_partial_sums(context_.element(), spec_, layout_));
    const double x2 = spec_.add ? x : 0;
    OpTraffic traffic;
    traffic.forward += spec_.frozen ? kernel({}, {}) : kernel({x, sums}, {sums});
    traffic.forward += kernel({x, x2}, {x, mask});
    traffic.backward += kernel({x, x, mask, sums}, {x2, sums});  // x and dy; the second input's gradient is written
    traffic.backward += kernel({x, x}, {x});
    return traffic;
  }

  bool streams(std::int64_t samples) const {
    const auto elements = static_cast<std::size_t>(samples * spec_.shape.elements());
    return elements * bytes_of(context_.element()) > context_.cache_bytes;
  }
  bool has_mask() const { return spec_.add && spec_.activation != Activation::none; }
  // Samples are the slowest index in both layouts.
  void zero_inactive(Activations values, std::int64_t active) const {
    const std::size_t sample_bytes = static_cast<std::size_t>(spec_.shape.elements()) * bytes_of(values.element());
    const auto inactive = static_cast<std::size_t>(spec_.batch - active);
    if (inactive == 0) return;
    auto* bytes = static_cast<std::byte*>(values.data());
    DDP_CUDA(cudaMemsetAsync(bytes + static_cast<std::size_t>(active) * sample_bytes, 0, inactive * sample_bytes,
                             context_.stream));
  }

  const CudaContext& context_;
  BatchNormSpec spec_;
  Layout layout_;
  Workspace saved_, space_;
  Workspace::Part<float> means_;
  Workspace::Part<std::uint8_t> mask_;
  Workspace::Part<float> partial_sums_;
};

}  // namespace

bool norm_joins(const CudaContext& context, const BatchNormSpec& spec) {
  return !spec.synchronized && !spec.frozen && !spec.input_bias &&
         batch_norm_takes(context.element(), spec, Layout::nhwc);
}

std::unique_ptr<Op> make_cuda_batch_norm(const CudaContext& context, const BatchNormSpec& spec, Layout layout) {
  return std::make_unique<CudaBatchNorm>(context, spec, layout);
}

}  // namespace ddp::cuda
