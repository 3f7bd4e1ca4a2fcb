// Batch normalisation, depthwise convolution and batch normalisation as one operator, the 1x1 convolution in front of
// them if expand.h supports it, and the one behind them if project.h does. What the first normalisation would write is computed
// wherever the depthwise convolution reads it, what the second one would write wherever the convolution behind reads it, and the
// results of the convolutions are saved; statistics and sums that the separate operators read whole tensors for are
// taken where these are written. traffic() lists the passes.
#include "backend/cuda/joined/norm_depthwise.h"

#include <algorithm>

#include "backend/cuda/conv/conv.h"
#include "backend/cuda/device/check.h"
#include "backend/cuda/device/element.h"
#include "backend/cuda/device/traffic.h"
#include "backend/cuda/joined/expand.h"
#include "backend/cuda/joined/joined.h"
#include "backend/cuda/joined/project.h"
#include "backend/cuda/norm/norm.h"
#include "backend/workspace.h"
#include "base/error.h"

namespace ddp::cuda {
namespace {

class CudaNormDepthwise final : public Op {
 public:
  // `wide`: the convolution in front, and `narrow`: the one behind, if there are such.
  CudaNormDepthwise(const CudaContext& context, const std::optional<ConvSpec>& wide, const NormDepthwiseSpec& spec,
                    const std::optional<ConvSpec>& narrow)
      : context_(context),
        wide_(wide),
        narrow_(narrow),
        spec_(spec),
        element_(context.element()),
        first_(wide ? 1 : 0),
        before_means_(saved_.add<float>(2 * spec.before.shape.channels)),
        after_means_(saved_.add<float>(2 * spec.before.shape.channels)),
        widened_(saved_.add<std::byte>(wide ? input_bytes(spec.conv.batch) : 0)),
        convolved_(saved_.add<std::byte>(result_bytes(spec.conv.batch))),
        gradient_(space_.add<std::byte>(wide ? input_bytes(spec.conv.batch) : 0)),
        result_gradient_(space_.add<std::byte>(narrow ? result_bytes(spec.conv.batch) : 0)),
        partial_sums_(space_.add<float>(
            std::max({moments_sums(), sums_of(spec.before), sums_of(spec.after), norm_depthwise_forward_sums(spec.conv),
                      norm_depthwise_backward_sums(spec.conv), wide ? expand_backward_sums(*wide) : 0,
                      narrow ? project_backward_sums(*narrow) : 0}))) {}

  std::size_t saved_bytes() const override { return saved_.bytes(); }
  std::size_t workspace_bytes() const override { return space_.bytes(); }
  bool backward_reads_x() const override { return true; }
  bool adds_to_dx() const override { return wide_.has_value(); }
  std::optional<OpTraffic> traffic() const override {
    const auto x = static_cast<double>(input_bytes(spec_.conv.batch));
    const auto y = static_cast<double>(result_bytes(spec_.conv.batch));
    const auto first = static_cast<double>(x_bytes(spec_.conv.batch));
    const auto last = static_cast<double>(y_bytes(spec_.conv.batch));
    const auto bytes = [](std::int64_t floats) { return sizeof(float) * static_cast<double>(floats); };
    const double taps = bytes(spec_.conv.weights());
    const double weights = wide_ ? bytes(wide_->weights()) : 0;
    const double moments = bytes(moments_sums());
    const double forward_sums = bytes(norm_depthwise_forward_sums(spec_.conv));
    const double backward_sums = bytes(norm_depthwise_backward_sums(spec_.conv));
    OpTraffic traffic;
    traffic.forward += wide_ ? kernel({first, weights, moments}, {x, moments}) : kernel({x, moments}, {moments});
    traffic.forward += kernel({x, taps, forward_sums}, {y, forward_sums});
    if (narrow_) {
      const double sums = bytes(project_backward_sums(*narrow_));
      const double factors = bytes(narrow_->weights());
      traffic.forward += kernel({y, factors}, {last});
      traffic.backward += kernel({y, last, factors}, {y, sums});
      traffic.backward += kernel({sums}, {factors});
    } else {
      traffic.forward += kernel({y}, {y});
      traffic.backward += kernel({y, y, bytes(sums_of(spec_.after))}, {bytes(sums_of(spec_.after))});
    }
    traffic.backward += kernel({x, y, y, taps}, {x, backward_sums});
    traffic.backward += kernel({backward_sums}, {taps});
    if (wide_) {
      const double expand_sums = bytes(expand_backward_sums(*wide_));
      traffic.backward += kernel({x, x, first, weights}, {first, expand_sums});
      traffic.backward += kernel({expand_sums}, {weights});
    } else {
      traffic.backward += kernel({x, x}, {x});
    }
    return traffic;
  }

  void forward(const ForwardArguments& a) override {
    DDP_ASSERT(is_aligned(a.x.data()) && is_aligned(a.y.data()));
    zero(a.y.data(), y_bytes(a.active), y_bytes(spec_.conv.batch));
    if (a.active == 0) return;
    float* const after_statistics = a.statistics + spec_.before.statistic_elements();
    NormDepthwiseForward convolution;
    convolution.samples = a.active;
    convolution.x = wide_ ? widened_.in(a.saved) : a.x.data();
    convolution.weights = a.parameters[first_ + kWeight];
    convolution.y = a.training || narrow_ ? convolved_.in(a.saved) : a.y.data();
    convolution.before = norm_at(a.parameters, kBefore);
    convolution.before.statistics = a.statistics;
    convolution.after = norm_at(a.parameters, kAfter);
    convolution.after.statistics = after_statistics;
    if (a.training) {
      convolution.before.means = before_means_.in(a.saved);
      convolution.after.means = after_means_.in(a.saved);
      convolution.partial_sums = partial_sums_.in(a.workspace);
    }
    begin_forward(a, convolution);
    norm_depthwise(context_.stream, element_, spec_, convolution);
    end_forward(a, convolution);
  }

  void backward(const BackwardArguments& a) override {
    DDP_ASSERT(is_aligned(a.x.data()) && is_aligned(a.dy.data()) && is_aligned(a.dx.data()));
    if (!a.add_to_dx) zero(a.dx.data(), x_bytes(a.active), x_bytes(spec_.conv.batch));
    if (a.active == 0) {
      clear(a.parameter_gradients);
      return;
    }
    float* const* gradients = a.parameter_gradients.data() + first_;
    NormDepthwiseBackward convolution;
    convolution.samples = a.active;
    convolution.x = wide_ ? widened_.in(a.saved) : a.x.data();
    convolution.convolved = convolved_.in(a.saved);
    convolution.dx = wide_ ? gradient_.in(a.workspace) : a.dx.data();
    convolution.weights = a.parameters[first_ + kWeight];
    convolution.weights_gradient = gradients[kWeight];
    convolution.before = norm_at(a.parameters, kBefore);
    convolution.before.means = before_means_.in(a.saved);
    convolution.after = norm_at(a.parameters, kAfter);
    convolution.after.means = after_means_.in(a.saved);
    convolution.after_weight_gradient = gradients[kAfter];
    convolution.after_bias_gradient = gradients[kAfter + 1];
    convolution.before_weight_gradient = gradients[kBefore];
    convolution.before_bias_gradient = gradients[kBefore + 1];
    convolution.partial_sums = partial_sums_.in(a.workspace);
    convolution.dy = begin_backward(a, convolution);
    norm_depthwise_backward(context_.stream, element_, spec_, convolution);
    end_backward(a, convolution);
  }

 private:
  // The places of the parameters, after the weight of the convolution in front.
  static constexpr std::size_t kBefore = 0;
  static constexpr std::size_t kWeight = 2;
  static constexpr std::size_t kAfter = 3;
  static constexpr std::size_t kBehind = 5;

  NormPointers norm_at(const std::array<const float*, kMaxParameters>& parameters, std::size_t place) const {
    return {parameters.at(first_ + place), parameters.at(first_ + place + 1), nullptr, nullptr};
  }

  // Computes what the depthwise convolution reads, and in training its moments.
  void begin_forward(const ForwardArguments& a, const NormDepthwiseForward& convolution) const {
    if (wide_) {
      ExpandForward wide;
      wide.samples = a.active;
      wide.x = a.x.data();
      wide.weights = a.parameters[0];
      wide.y = widened_.in(a.saved);
      wide.norm = a.training ? &spec_.before : nullptr;
      wide.means = convolution.before.means;
      wide.statistics = convolution.before.statistics;
      wide.partial_sums = convolution.partial_sums;
      expand(context_.stream, *wide_, wide);
    } else if (a.training) {
      BatchNormForward norm;
      norm.samples = a.active;
      norm.x = a.x.data();
      norm.statistics = convolution.before.statistics;
      norm.means = convolution.before.means;
      norm.partial_sums = convolution.partial_sums;
      batch_norm_moments(context_.stream, element_, spec_.before, kJoinedLayout, norm);
    }
  }

  // Computes y from what the depthwise convolution has written, which in evaluation is normalised.
  void end_forward(const ForwardArguments& a, const NormDepthwiseForward& convolution) const {
    if (narrow_) {
      ProjectForward narrow;
      narrow.samples = a.active;
      narrow.x = convolution.y;
      narrow.weights = a.parameters[first_ + kBehind];
      narrow.y = a.y.data();
      narrow.norm = a.training ? &spec_.after : nullptr;
      narrow.of_norm = convolution.after;
      project(context_.stream, *narrow_, narrow);
    } else if (a.training) {
      BatchNormForward norm;
      norm.samples = a.active;
      norm.x = convolution.y;
      norm.y = a.y.data();
      norm.weight = convolution.after.weight;
      norm.bias = convolution.after.bias;
      norm.means = convolution.after.means;
      batch_norm_normalize(context_.stream, element_, spec_.after, kJoinedLayout, norm);
    }
  }

  // Computes the gradients of the second normalisation's parameters. Returns the gradient of its result, or that before its
  // activation.
  const void* begin_backward(const BackwardArguments& a, const NormDepthwiseBackward& convolution) const {
    float* const* gradients = a.parameter_gradients.data() + first_;
    if (narrow_) {
      ProjectBackward narrow;
      narrow.samples = a.active;
      narrow.x = convolution.convolved;
      narrow.dy = a.dy.data();
      narrow.g = result_gradient_.in(a.workspace);
      narrow.weights = a.parameters[first_ + kBehind];
      narrow.weights_gradient = gradients[kBehind];
      narrow.norm = &spec_.after;
      narrow.of_norm = convolution.after;
      narrow.norm_weight_gradient = gradients[kAfter];
      narrow.norm_bias_gradient = gradients[kAfter + 1];
      narrow.partial_sums = convolution.partial_sums;
      project_backward(context_.stream, *narrow_, narrow);
      return narrow.g;
    }
    BatchNormBackward norm;
    norm.samples = a.active;
    norm.x = convolution.convolved;
    norm.dy = a.dy.data();
    norm.weight = convolution.after.weight;
    norm.bias = convolution.after.bias;
    norm.weight_gradient = gradients[kAfter];
    norm.bias_gradient = gradients[kAfter + 1];
    norm.means = convolution.after.means;
    norm.partial_sums = convolution.partial_sums;
    batch_norm_sums(context_.stream, element_, spec_.after, kJoinedLayout, norm);
    return a.dy.data();
  }

  // Computes dx from the gradient before the activation of the first normalisation.
  void end_backward(const BackwardArguments& a, const NormDepthwiseBackward& convolution) const {
    if (wide_) {
      ExpandBackward wide;
      wide.samples = a.active;
      wide.x = a.x.data();
      wide.y = convolution.x;
      wide.g = convolution.dx;
      wide.dx = a.dx.data();
      wide.add = a.add_to_dx;
      wide.weights = a.parameters[0];
      wide.weights_gradient = a.parameter_gradients[0];
      wide.means = convolution.before.means;
      wide.norm_weight = convolution.before.weight;
      wide.norm_weight_gradient = convolution.before_weight_gradient;
      wide.norm_bias_gradient = convolution.before_bias_gradient;
      wide.partial_sums = convolution.partial_sums;
      expand_backward(context_.stream, *wide_, wide);
      return;
    }
    BatchNormBackward norm;
    norm.samples = a.active;
    norm.x = a.x.data();
    norm.dx = norm.dx2 = a.dx.data();  // the gradient before the activation is replaced
    norm.weight = convolution.before.weight;
    norm.bias = convolution.before.bias;
    norm.weight_gradient = convolution.before_weight_gradient;
    norm.bias_gradient = convolution.before_bias_gradient;
    norm.means = convolution.before.means;
    batch_norm_input_gradient(context_.stream, element_, spec_.before, kJoinedLayout, norm);
  }

  std::int64_t sums_of(const BatchNormSpec& norm) const {
    return batch_norm_partial_sums(element_, norm, kJoinedLayout);
  }
  std::int64_t moments_sums() const { return wide_ ? expand_forward_sums(*wide_) : sums_of(spec_.before); }
  std::int64_t bytes_in(const Shape& shape, std::int64_t samples) const {
    return samples * shape.elements() * static_cast<std::int64_t>(bytes_of(element_));
  }
  // Of the operator's input and result, and of those of the depthwise convolution.
  std::int64_t x_bytes(std::int64_t samples) const {
    return bytes_in(wide_ ? wide_->input : spec_.conv.input, samples);
  }
  std::int64_t y_bytes(std::int64_t samples) const {
    return bytes_in(narrow_ ? narrow_->convolved() : spec_.conv.convolved(), samples);
  }
  std::int64_t input_bytes(std::int64_t samples) const { return bytes_in(spec_.conv.input, samples); }
  std::int64_t result_bytes(std::int64_t samples) const { return bytes_in(spec_.conv.convolved(), samples); }
  void zero(void* values, std::int64_t begin, std::int64_t end) const {
    if (begin == end) return;
    DDP_CUDA(cudaMemsetAsync(static_cast<std::byte*>(values) + begin, 0, static_cast<std::size_t>(end - begin),
                             context_.stream));
  }
  void clear(const std::array<float*, kMaxParameters>& gradients) const {
    const std::int64_t channels = spec_.before.shape.channels;
    const auto clear_at = [&](std::size_t p, std::int64_t count) {
      zero(gradients.at(p), 0, count * static_cast<std::int64_t>(sizeof(float)));
    };
    if (wide_) clear_at(0, wide_->weights());
    for (const std::size_t norm : {kBefore, kAfter}) {
      clear_at(first_ + norm, channels);
      clear_at(first_ + norm + 1, channels);
    }
    clear_at(first_ + kWeight, spec_.conv.weights());
    if (narrow_) clear_at(first_ + kBehind, narrow_->weights());
  }

  const CudaContext& context_;
  std::optional<ConvSpec> wide_, narrow_;
  NormDepthwiseSpec spec_;
  Element element_;
  std::size_t first_;  // the place of the first normalisation's parameters
  Workspace saved_, space_;
  Workspace::Part<float> before_means_, after_means_;
  Workspace::Part<std::byte> widened_, convolved_, gradient_, result_gradient_;
  Workspace::Part<float> partial_sums_;
};

bool joins(const CudaContext& context, const BatchNormSpec& norm) { return !norm.add && norm_joins(context, norm); }

}  // namespace

std::unique_ptr<Op> make_cuda_norm_depthwise(const CudaContext& context, std::span<const OpSpec> specs, Layout layout) {
  if (layout != kJoinedLayout || specs.size() < 3) return nullptr;
  std::optional<ConvSpec> wide;
  if (const auto* first = std::get_if<ConvSpec>(specs.data())) {
    if (!expand_takes(context.element(), *first)) return nullptr;
    wide = *first;
    specs = specs.subspan(1);
  }
  if (specs.size() < 3 || specs.size() > 4) return nullptr;
  const auto* before = std::get_if<BatchNormSpec>(specs.data());
  const auto* conv = std::get_if<ConvSpec>(&specs[1]);
  const auto* after = std::get_if<BatchNormSpec>(&specs[2]);
  if (before == nullptr || conv == nullptr || after == nullptr) return nullptr;
  if (!joins(context, *before) || !joins(context, *after) || !depthwise_supports(context.element(), *conv) ||
      conv->bias || conv->relu || !conv->input_gradient || conv->batch * conv->input.elements() > kMostElements) {
    return nullptr;
  }
  std::optional<ConvSpec> narrow;
  if (specs.size() == 4) {
    const auto* last = std::get_if<ConvSpec>(&specs[3]);
    if (last == nullptr || !project_takes(context.element(), *last)) return nullptr;
    narrow = *last;
  }
  return std::make_unique<CudaNormDepthwise>(context, wide, NormDepthwiseSpec{*before, *conv, *after}, narrow);
}

}  // namespace ddp::cuda
