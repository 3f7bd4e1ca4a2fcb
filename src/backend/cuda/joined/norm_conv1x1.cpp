// A 1x1 convolution and the batch normalisation behind it as one operator, and with the normalisation in front of it too: by the
// kernels of conv1x1.h, the convolution's result is read once less forward, its gradient is not stored backward, and neither is
// the result of the normalisation in front.
#include <algorithm>
#include <optional>

#include "backend/cuda/device/check.h"
#include "backend/cuda/device/element.h"
#include "backend/cuda/device/traffic.h"
#include "backend/cuda/joined/conv1x1.h"
#include "backend/cuda/joined/joined.h"
#include "backend/cuda/norm/norm.h"
#include "backend/workspace.h"
#include "base/error.h"

namespace ddp::cuda {
namespace {

// The kernels process only active samples; of the others results and gradients are zero.
class CudaNormConv1x1 final : public Op {
 public:
  CudaNormConv1x1(const CudaContext& context, const std::optional<BatchNormSpec>& before, const ConvSpec& conv,
                  const BatchNormSpec& after)
      : context_(context),
        before_(before),
        conv_(conv),
        after_(after),
        first_(before ? 2 : 0),
        before_means_(saved_.add<float>(before ? 2 * before->shape.channels : 0)),
        after_means_(saved_.add<float>(2 * after.shape.channels)),
        mask_(saved_.add<std::uint8_t>(batch_norm_mask_bytes(context.element(), after, kJoinedLayout))),
        convolved_(saved_.add<std::byte>(bytes_in(after.shape, conv.batch))),
        partial_sums_(
            space_.add<float>(std::max({before ? batch_norm_partial_sums(context.element(), *before, kJoinedLayout) : 0,
                                        batch_norm_partial_sums(context.element(), after, kJoinedLayout),
                                        conv1x1_forward_sums(conv), conv1x1_backward_sums(conv)}))) {}

  OpTraits traits() const override {
    return {.saved_bytes = saved_.bytes(),
            .workspace_bytes = space_.bytes(),
            .backward_reads_inputs = {0},
            .adds_to_dx = !before_,
            .traffic = traffic()};
  }

  void forward(const ForwardArguments& a) override {
    DDP_ASSERT(is_aligned(a.x().data()) && is_aligned(a.inputs[1].data()) && is_aligned(a.y.data()));
    zero_inactive(a.y.data(), after_.shape, a.active);
    if (a.active == 0) return;
    Conv1x1Arguments convolution = arguments_of(a.active, a.x().data(), a.parameters, a.saved);
    convolution.of_before.statistics = a.statistics;
    convolution.of_after.statistics = a.statistics + (before_ ? before_->statistic_elements() : 0);
    if (a.training) {
      convolution.partial_sums = partial_sums_.in(a.workspace);
      if (before_) take_moments(convolution);
    } else {
      convolution.after = nullptr;
      convolution.of_before.means = convolution.of_after.means = nullptr;
    }
    conv1x1(context_.stream, conv_, convolution);
    BatchNormForward norm;
    norm.samples = a.active;
    norm.x = convolution.y;
    norm.x2 = after_.add ? a.inputs[1].data() : nullptr;
    norm.y = a.y.data();
    norm.weight = convolution.of_after.weight;
    norm.bias = convolution.of_after.bias;
    norm.statistics = convolution.of_after.statistics;
    norm.means = convolution.of_after.means;
    norm.streams = streams(a.active);
    if (a.training && has_mask()) norm.mask = mask_.in(a.saved);
    batch_norm_normalize(context_.stream, context_.element(), after_, kJoinedLayout, norm);
  }

  void backward(const BackwardArguments& a) override {
    DDP_ASSERT(is_aligned(a.x().data()) && is_aligned(a.dy.data()) && is_aligned(a.dx().data()) &&
               is_aligned(a.input_gradients[1].data()));
    if (!a.add_to_dx)
      zero(a.dx().data(), strided() ? 0 : bytes_in(conv_.input, a.active), bytes_in(conv_.input, conv_.batch));
    if (after_.add) zero_inactive(a.input_gradients[1].data(), after_.shape, a.active);
    if (a.active == 0) {
      clear(a.parameter_gradients);
      return;
    }
    Conv1x1Arguments convolution = arguments_of(a.active, a.x().data(), a.parameters, a.saved);
    convolution.g = a.dy.data();
    convolution.activation = after_.activation;
    convolution.dx = a.dx().data();
    convolution.add = a.add_to_dx;
    convolution.weights_gradient = a.parameter_gradients[first_];
    convolution.after_weight_gradient = a.parameter_gradients[first_ + 1];
    convolution.after_bias_gradient = a.parameter_gradients[first_ + 2];
    convolution.partial_sums = partial_sums_.in(a.workspace);
    take_sums(a, convolution);
    if (before_) {
      convolution.before_weight_gradient = a.parameter_gradients[0];
      convolution.before_bias_gradient = a.parameter_gradients[1];
    }
    conv1x1_backward(context_.stream, conv_, convolution);
    if (before_) finish_input_gradient(convolution);
  }

 private:
  OpTraffic traffic() const {
    const auto floats = [](std::int64_t count) { return sizeof(float) * static_cast<double>(count); };
    const auto sums_of = [&](const BatchNormSpec& norm) {
      return floats(batch_norm_partial_sums(context_.element(), norm, kJoinedLayout));
    };
    const auto whole = static_cast<double>(bytes_in(conv_.input, conv_.batch));
    // The part of the input that the convolution reads: with a stride not all.
    const Shape result = conv_.convolved();
    const auto x = static_cast<double>(bytes_in({conv_.input.channels, result.height, result.width}, conv_.batch));
    const auto y = static_cast<double>(bytes_in(after_.shape, conv_.batch));
    const double y2 = after_.add ? y : 0;
    const auto mask = static_cast<double>(batch_norm_mask_bytes(context_.element(), after_, kJoinedLayout));
    const double weights = floats(conv_.weights());
    const double forward_sums = floats(conv1x1_forward_sums(conv_));
    const double backward_sums = floats(conv1x1_backward_sums(conv_));
    OpTraffic traffic;
    if (before_) traffic.forward += kernel({x, sums_of(*before_)}, {sums_of(*before_)});
    traffic.forward += kernel({x, weights, forward_sums}, {y, forward_sums});
    traffic.forward += kernel({y, y2}, {y, mask});
    traffic.backward += kernel({y, y, mask, sums_of(after_)}, {y2, sums_of(after_)});
    traffic.backward += kernel({x, y, y, weights}, {x, backward_sums});
    traffic.backward += kernel({backward_sums}, {weights});
    traffic.backward_adding = traffic.backward;
    traffic.backward_adding->bytes += x;
    if (strided()) traffic.backward.bytes += whole;  // set to zero
    if (before_) traffic.backward += kernel({x, x}, {x});
    return traffic;
  }

  // Arguments of both directions in training.
  Conv1x1Arguments arguments_of(std::int64_t samples, const void* x, const ArgumentList<const float*>& parameters,
                                std::byte* saved) const {
    Conv1x1Arguments arguments;
    arguments.samples = samples;
    arguments.x = x;
    arguments.weights = parameters[first_];
    arguments.y = convolved_.in(saved);
    if (before_) {
      arguments.before = &*before_;
      arguments.of_before = {parameters[0], parameters[1], before_means_.in(saved), nullptr};
    }
    arguments.after = &after_;
    arguments.of_after = {parameters[first_ + 1], parameters[first_ + 2], after_means_.in(saved), nullptr};
    return arguments;
  }

  // The moments of the normalisation in front.
  void take_moments(const Conv1x1Arguments& convolution) const {
    BatchNormForward norm;
    norm.samples = convolution.samples;
    norm.x = convolution.x;
    norm.statistics = convolution.of_before.statistics;
    norm.means = convolution.of_before.means;
    norm.partial_sums = convolution.partial_sums;
    batch_norm_moments(context_.stream, context_.element(), *before_, kJoinedLayout, norm);
  }

  // The gradients of the parameters of the normalisation behind, and that of the second input, which the convolution then reads
  // as the gradient before the activation.
  void take_sums(const BackwardArguments& a, Conv1x1Arguments& convolution) const {
    BatchNormBackward norm;
    norm.samples = a.active;
    norm.x = convolution.y;
    norm.dy = a.dy.data();
    norm.dx2 = after_.add ? a.input_gradients[1].data() : nullptr;
    norm.weight = convolution.of_after.weight;
    norm.bias = convolution.of_after.bias;
    norm.weight_gradient = a.parameter_gradients[first_ + 1];
    norm.bias_gradient = a.parameter_gradients[first_ + 2];
    norm.means = convolution.of_after.means;
    if (has_mask()) norm.mask = mask_.in(a.saved);
    norm.partial_sums = convolution.partial_sums;
    batch_norm_sums(context_.stream, context_.element(), after_, kJoinedLayout, norm);
    if (!after_.add) return;
    convolution.g = a.input_gradients[1].data();
    convolution.activation = Activation::none;
  }

  // dx from the gradient before the activation of the normalisation in front, which is there.
  void finish_input_gradient(const Conv1x1Arguments& convolution) const {
    BatchNormBackward norm;
    norm.samples = convolution.samples;
    norm.x = convolution.x;
    norm.dx = norm.dx2 = convolution.dx;
    norm.weight = convolution.of_before.weight;
    norm.bias = convolution.of_before.bias;
    norm.weight_gradient = convolution.before_weight_gradient;
    norm.bias_gradient = convolution.before_bias_gradient;
    norm.means = convolution.of_before.means;
    batch_norm_input_gradient(context_.stream, context_.element(), *before_, kJoinedLayout, norm);
  }

  bool strided() const { return conv_.window.stride.vertical > 1; }
  bool has_mask() const { return after_.add && after_.activation != Activation::none; }
  bool streams(std::int64_t samples) const {
    return static_cast<std::size_t>(bytes_in(after_.shape, samples)) > context_.cache_bytes;
  }
  std::int64_t bytes_in(const Shape& shape, std::int64_t samples) const {
    return samples * shape.elements() * static_cast<std::int64_t>(bytes_of(context_.element()));
  }
  void zero(void* values, std::int64_t begin, std::int64_t end) const {
    if (begin == end) return;
    DDP_CUDA(cudaMemsetAsync(static_cast<std::byte*>(values) + begin, 0, static_cast<std::size_t>(end - begin),
                             context_.stream));
  }
  void zero_inactive(void* values, const Shape& shape, std::int64_t active) const {
    zero(values, bytes_in(shape, active), bytes_in(shape, conv_.batch));
  }
  void clear(const ArgumentList<float*>& gradients) const {
    const auto clear_at = [&](std::size_t p, std::int64_t count) {
      zero(gradients[p], 0, count * static_cast<std::int64_t>(sizeof(float)));
    };
    for (std::size_t p = 0; p < first_; ++p) clear_at(p, conv_.input.channels);
    clear_at(first_, conv_.weights());
    for (const std::size_t p : {first_ + 1, first_ + 2}) clear_at(p, conv_.output_channels);
  }

  const CudaContext& context_;
  std::optional<BatchNormSpec> before_;
  ConvSpec conv_;
  BatchNormSpec after_;
  std::size_t first_;  // the place of the convolution's weight among the parameters
  Workspace saved_, space_;
  Workspace::Part<float> before_means_, after_means_;
  Workspace::Part<std::uint8_t> mask_;
  Workspace::Part<std::byte> convolved_;
  Workspace::Part<float> partial_sums_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_norm_conv1x1(const CudaContext& context, std::span<const OpSpec> specs, Layout layout) {
  if (layout != kJoinedLayout || specs.size() < 2 || specs.size() > 3) return nullptr;
  std::optional<BatchNormSpec> before;
  if (specs.size() == 3) {
    const auto* norm = std::get_if<BatchNormSpec>(specs.data());
    if (norm == nullptr || norm->add || !norm_joins(context, *norm)) return nullptr;
    before = *norm;
    specs = specs.subspan(1);
  }
  const auto* conv = std::get_if<ConvSpec>(specs.data());
  const auto* after = std::get_if<BatchNormSpec>(&specs[1]);
  if (conv == nullptr || after == nullptr || !norm_joins(context, *after)) return nullptr;
  const bool takes =
      before ? conv1x1_takes_behind_norm(context.element(), *conv) : conv1x1_takes(context.element(), *conv);
  const std::int64_t most = std::max(conv->input.elements(), after->shape.elements());
  if (!takes || conv->batch * most > kMostElements || conv1x1_shared_bytes(*conv) > context.shared_bytes)
    return nullptr;
  return std::make_unique<CudaNormConv1x1>(context, before, *conv, *after);
}

}  // namespace ddp::cuda
