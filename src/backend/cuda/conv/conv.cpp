#include "backend/cuda/conv/conv.h"

#include <algorithm>

#include "backend/cuda/device/element.h"
#include "backend/cuda/device/traffic.h"
#include "backend/cuda/pointwise/pointwise.h"
#include "backend/cuda/vendor/conv_kernel.h"
#include "backend/cuda/vendor/conv_plans.h"
#include "backend/workspace.h"

namespace ddp::cuda {
namespace {

class CudaConv final : public Op {
 public:
  CudaConv(const CudaContext& context, const ConvSpec& spec, const ConvKernels& kernels)
      : context_(context),
        spec_(spec),
        forward_(make_kernel(ConvDirection::forward, kernels.forward)),
        weights_(make_kernel(ConvDirection::weights, kernels.weights)) {
    if (spec.input_gradient) {
      data_ = make_kernel(ConvDirection::data, kernels.data);
      if (kernels.adding) adding_ = make_kernel(ConvDirection::data, *kernels.adding, /*add=*/true);
    }
    const auto element_bytes = static_cast<std::int64_t>(bytes_of(context.element()));
    const std::int64_t convolved_bytes = rows() * spec.output_channels * element_bytes;
    packed_ = saved_.add<std::byte>(weight_count() * element_bytes);
    convolved_ = saved_.add<std::byte>(spec.average_pool ? convolved_bytes : 0);
    packed_once_ = forward_space_.add<std::byte>(weight_count() * element_bytes);
    convolved_once_ = forward_space_.add<std::byte>(spec.average_pool ? convolved_bytes : 0);
    forward_scratch_ = forward_space_.add<std::byte>(static_cast<std::int64_t>(forward_->workspace_bytes()));
    dpre_ = backward_space_.add<std::byte>(spec.relu ? convolved_bytes : 0);
    partial_sums_ = backward_space_.add<float>(spec.bias ? bias_partial_sums(rows(), spec.output_channels) : 0);
    packed_gradient_ = backward_space_.add<std::byte>(weight_count() * element_bytes);
    const std::size_t scratch = std::max(
        {weights_->workspace_bytes(), data_ ? data_->workspace_bytes() : 0, adding_ ? adding_->workspace_bytes() : 0});
    backward_scratch_ = backward_space_.add<std::byte>(static_cast<std::int64_t>(scratch));
  }

  OpTraits traits() const override {
    return {.saved_bytes = saved_.bytes(),
            .workspace_bytes = std::max(forward_space_.bytes(), backward_space_.bytes()),
            .backward_reads_inputs = {0},
            .backward_reads_y = spec_.relu && !spec_.average_pool,
            .adds_to_dx = adding_ != nullptr,
            .packed_form = packed_form(),
            .traffic = traffic()};
  }

  void forward(const ForwardArguments& a) override {
    const Element element = context_.element();
    const bool kept = a.saved != nullptr;
    const void* packed = a.packed != nullptr ? static_cast<const void*>(a.packed) : a.parameters[0];
    if (a.packed == nullptr && !lies_as_packed(a.parameters[0])) {
      std::byte* copy = kept ? packed_.in(a.saved) : packed_once_.in(a.workspace);
      pack_weights(context_.stream, a.parameters[0], element, copy, packed_shape());
      packed = copy;
    }
    void* convolved = a.y.data();
    if (spec_.average_pool) convolved = kept ? convolved_.in(a.saved) : convolved_once_.in(a.workspace);
    forward_->execute({a.x().data(), packed, convolved}, forward_scratch_.in(a.workspace));
    if (spec_.average_pool) {
      add_bias_relu_pool(context_.stream, element, convolved, bias_of(a.parameters), a.y.data(), spec_.batch,
                         spec_.convolved());
    } else if (spec_.bias || spec_.relu) {
      add_bias(context_.stream, element, spec_.relu, a.y.data(), bias_of(a.parameters), rows(), spec_.output_channels);
    }
  }

  void backward(const BackwardArguments& a) override {
    const void* dpre = open_gradient(a);
    float* gradient = a.parameter_gradients[0];
    const bool direct = lies_as_packed(gradient);
    void* packed_gradient = a.packed_gradient;
    if (packed_gradient == nullptr) {
      packed_gradient = direct ? static_cast<void*>(gradient) : packed_gradient_.in(a.workspace);
    }
    weights_->execute({a.x().data(), packed_gradient, dpre}, backward_scratch_.in(a.workspace));
    if (a.packed_gradient == nullptr && !direct) {
      unpack_weights(context_.stream, context_.element(), packed_gradient, gradient, packed_shape());
    }
    if (data_ == nullptr) return;
    ConvKernel& data = a.add_to_dx ? *adding_ : *data_;
    data.execute({a.dx().data(), weights_for(a), dpre}, backward_scratch_.in(a.workspace));
  }

 private:
  std::optional<PackedShape> packed_form() const {
    if (context_.element() == Element::fp32 && (group_channels() == 1 || taps() == 1)) return std::nullopt;
    return packed_shape();
  }
  OpTraffic traffic() const {
    const double each = static_cast<double>(bytes_of(context_.element()));
    const double x = each * static_cast<double>(spec_.batch * spec_.input.elements());
    const double convolved = each * static_cast<double>(rows() * spec_.output_channels);
    const double y = each * static_cast<double>(spec_.batch * spec_.output().elements());
    const double packed = each * static_cast<double>(weight_count());
    // Each direction reads two of the tensors and writes the third; a workspace is written and read.
    const auto convolution = [&](const ConvKernel& used) {
      return PassTraffic{used.kernels(), x + packed + convolved + 2 * static_cast<double>(used.workspace_bytes())};
    };
    OpTraffic traffic;
    traffic.forward += convolution(*forward_);
    if (spec_.average_pool) {
      traffic.forward += kernel({convolved}, {y});
    } else if (spec_.bias || spec_.relu) {
      traffic.forward += kernel({convolved}, {convolved});
    }
    if (spec_.bias || spec_.relu) {
      traffic.backward += kernel({y, spec_.relu ? convolved : 0}, {spec_.relu ? convolved : 0});
      if (spec_.bias && bias_partial_sums(rows(), spec_.output_channels) > 0) traffic.backward.kernels += 1;
    }
    traffic.backward += convolution(*weights_);
    if (data_ != nullptr) traffic.backward += convolution(*data_);
    return traffic;
  }

  std::unique_ptr<ConvKernel> make_kernel(ConvDirection direction, const EngineChoice& choice, bool add = false) const {
    return make_conv_kernel(context_, {spec_, direction, context_.precision, add}, choice);
  }

  std::int64_t taps() const { return spec_.window.height * spec_.window.width; }
  // The number of channels that an output channel reads.
  std::int64_t group_channels() const { return spec_.input.channels / spec_.groups; }
  std::int64_t weight_count() const { return spec_.weights(); }
  PackedShape packed_shape() const { return {spec_.output_channels, group_channels(), taps()}; }
  std::int64_t rows() const { return spec_.batch * spec_.convolved().height * spec_.convolved().width; }

  // Whether [K][C][R][S] at this address can be used as [K][R][S][C] without a copy.
  bool lies_as_packed(const float* weights) const {
    return context_.element() == Element::fp32 && (group_channels() == 1 || taps() == 1) && is_aligned(weights);
  }
  const void* weights_for(const BackwardArguments& a) const {
    if (a.packed != nullptr) return a.packed;
    return lies_as_packed(a.parameters[0]) ? static_cast<const void*>(a.parameters[0]) : packed_.in(a.saved);
  }

  template <class T>
  T* bias_of(const ArgumentList<T*>& parameters) const {
    return spec_.bias ? parameters[1] : nullptr;
  }

  // Computes the gradient before bias, ReLU and pooling, and the bias gradient.
  const void* open_gradient(const BackwardArguments& a) const {
    if (!spec_.bias && !spec_.relu) return a.dy.data();
    BiasBackward bias;
    bias.element = context_.element();
    bias.rows = rows();
    bias.channels = spec_.output_channels;
    bias.dy = a.dy.data();
    bias.bias_gradient = bias_of(a.parameter_gradients);
    bias.partial_sums = partial_sums_.in(a.workspace);
    bias.dpre = spec_.relu ? dpre_.in(a.workspace) : nullptr;
    if (spec_.average_pool) {
      bias.convolved = convolved_.in(a.saved);
      bias.bias = bias_of(a.parameters);
      bias.height = spec_.convolved().height;
      bias.width = spec_.convolved().width;
    } else if (spec_.relu) {
      bias.y = a.y.data();
    }
    bias_backward(context_.stream, bias);
    return spec_.relu ? bias.dpre : bias.dy;
  }

  const CudaContext& context_;
  ConvSpec spec_;
  std::unique_ptr<ConvKernel> forward_, weights_, data_;
  std::unique_ptr<ConvKernel> adding_;  // in place of data_ where dx is added to; null: there is none
  Workspace saved_, forward_space_, backward_space_;
  Workspace::Part<std::byte> packed_, convolved_;
  Workspace::Part<std::byte> packed_once_, convolved_once_;  // if nothing is saved for a backward pass
  Workspace::Part<std::byte> forward_scratch_, backward_scratch_, dpre_, packed_gradient_;
  Workspace::Part<float> partial_sums_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_conv(const CudaContext& context, const ConvSpec& spec, const ConvKernels& kernels) {
  return std::make_unique<CudaConv>(context, spec, kernels);
}

}  // namespace ddp::cuda
