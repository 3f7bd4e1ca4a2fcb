#include "backend/cuda/linear/linear.h"

#include <algorithm>

#include "backend/cuda/device/check.h"
#include "backend/cuda/device/element.h"
#include "backend/cuda/device/traffic.h"
#include "backend/cuda/linear/small_product.h"
#include "backend/cuda/pointwise/pointwise.h"
#include "backend/cuda/vendor/matrix_product.h"
#include "backend/workspace.h"

namespace ddp::cuda {
namespace {

// With ReLU, the bias is added by our own kernel: the ReLU of cuBLASLt would turn NaN into zero and hide a broken
// weight from the loss. Without ReLU, cuBLASLt adds it.
class CudaLinear final : public Op {
 public:
  CudaLinear(const CudaContext& context, const LinearSpec& spec)
      : context_(context),
        spec_(spec),
        forward_(context.cublas, {.rows = spec.batch,
                                  .columns = spec.outputs,
                                  .depth = spec.inputs,
                                  .transpose_b = true,
                                  .precision = context.precision,
                                  .result = context.element(),
                                  .bias = spec.bias && !spec.relu}),
        weights_(context.cublas, {.rows = spec.outputs,
                                  .columns = spec.inputs,
                                  .depth = spec.batch,
                                  .transpose_a = true,
                                  .precision = context.precision,
                                  .result = Element::fp32}) {
    std::size_t backward_scratch = weights_.workspace_bytes();
    if (spec.input_gradient) {
      data_ = std::make_unique<RowProduct>(context.cublas, RowProductSpec{.rows = spec.batch,
                                                                          .columns = spec.inputs,
                                                                          .depth = spec.outputs,
                                                                          .precision = context.precision,
                                                                          .result = context.element()});
      backward_scratch = std::max(backward_scratch, data_->workspace_bytes());
    }
    const auto element_bytes = static_cast<std::int64_t>(bytes_of(context.element()));
    weights_copy_ = forward_space_.add<std::byte>(weight_count() * element_bytes);
    bias_copy_ = forward_space_.add<std::byte>(spec.bias && !spec.relu ? spec.outputs * element_bytes : 0);
    forward_scratch_ = forward_space_.add<std::byte>(static_cast<std::int64_t>(forward_.workspace_bytes()));
    backward_weights_ = backward_space_.add<std::byte>(spec.input_gradient ? weight_count() * element_bytes : 0);
    dpre_ = backward_space_.add<std::byte>(spec.relu ? spec.batch * spec.outputs * element_bytes : 0);
    partial_sums_ = backward_space_.add<float>(spec.bias ? bias_partial_sums(spec.batch, spec.outputs) : 0);
    gradient_copy_ = backward_space_.add<float>(weight_count());
    backward_scratch_ = backward_space_.add<std::byte>(static_cast<std::int64_t>(backward_scratch));
  }

  OpTraits traits() const override {
    return {.workspace_bytes = std::max(forward_space_.bytes(), backward_space_.bytes()),
            .backward_reads_inputs = {0},
            .backward_reads_y = spec_.relu,
            .packed_form = packed_form(),
            .traffic = traffic()};
  }

  void forward(const ForwardArguments& a) override {
    const Element element = context_.element();
    const void* weights = a.packed;
    if (weights == nullptr) weights = usable(a.parameters[0], weight_count(), weights_copy_.in(a.workspace));
    const void* bias = nullptr;
    if (spec_.bias && !spec_.relu) bias = usable(a.parameters[1], spec_.outputs, bias_copy_.in(a.workspace));
    forward_.run(context_.stream, a.x().data(), weights, a.y.data(), bias, forward_scratch_.in(a.workspace));
    if (spec_.relu) {
      add_bias(context_.stream, element, true, a.y.data(), spec_.bias ? a.parameters[1] : nullptr, spec_.batch,
               spec_.outputs);
    }
  }

  void backward(const BackwardArguments& a) override {
    const bool small = takes_small_gradient(spec_);
    // The kernel for few outputs includes the bias.
    const bool with_bias = small && !spec_.relu && spec_.bias;
    const void* dpre = with_bias ? a.dy.data() : open_gradient(a);
    if (small) {
      small_gradient(context_.stream, context_.element(), spec_, dpre, a.x().data(), a.parameter_gradients[0],
                     with_bias ? a.parameter_gradients[1] : nullptr);
    } else {
      write_weight_gradient(a, dpre);
    }
    if (data_ == nullptr) return;
    const void* weights = a.packed;
    if (weights == nullptr) weights = usable(a.parameters[0], weight_count(), backward_weights_.in(a.workspace));
    data_->run(context_.stream, dpre, weights, a.dx().data(), nullptr, backward_scratch_.in(a.workspace));
  }

 private:
  std::optional<PackedShape> packed_form() const {
    if (context_.element() == Element::fp32) return std::nullopt;
    return PackedShape{1, weight_count(), 1, PackedForm::weight_rows};
  }
  OpTraffic traffic() const {
    const double each = static_cast<double>(bytes_of(context_.element()));
    const double x = each * static_cast<double>(spec_.batch * spec_.inputs);
    const double y = each * static_cast<double>(spec_.batch * spec_.outputs);
    const double weights = each * static_cast<double>(weight_count());
    const double plain = sizeof(float) * static_cast<double>(weight_count());
    const bool converts = context_.element() != Element::fp32;
    const bool small = takes_small_gradient(spec_);
    OpTraffic traffic;
    if (converts && spec_.bias && !spec_.relu) traffic.forward += kernel({}, {});
    traffic.forward += kernel({x, weights}, {y});
    if (spec_.relu) traffic.forward += kernel({y}, {y});
    if (spec_.relu || (spec_.bias && !small)) {
      traffic.backward += kernel({y, spec_.relu ? y : 0}, {spec_.relu ? y : 0});
      if (spec_.bias && bias_partial_sums(spec_.batch, spec_.outputs) > 0) traffic.backward.kernels += 1;
    }
    traffic.backward += kernel({x, y}, {plain});
    if (data_ != nullptr) traffic.backward += kernel({y, weights}, {x});
    return traffic;
  }

  std::int64_t weight_count() const { return spec_.inputs * spec_.outputs; }

  void write_weight_gradient(const BackwardArguments& a, const void* dpre) {
    float* gradient = a.parameter_gradients[0];
    float* target = is_aligned(gradient) ? gradient : gradient_copy_.in(a.workspace);
    weights_.run(context_.stream, dpre, a.x().data(), target, nullptr, backward_scratch_.in(a.workspace));
    if (target != gradient) {
      convert(context_.stream, Element::fp32, target, Element::fp32, gradient, weight_count());
    }
  }

  // Computes the gradient before bias and ReLU, and the bias gradient.
  const void* open_gradient(const BackwardArguments& a) const {
    if (!spec_.bias && !spec_.relu) return a.dy.data();
    BiasBackward bias;
    bias.element = context_.element();
    bias.rows = spec_.batch;
    bias.channels = spec_.outputs;
    bias.dy = a.dy.data();
    bias.y = spec_.relu ? a.y.data() : nullptr;
    bias.dpre = spec_.relu ? dpre_.in(a.workspace) : nullptr;
    bias.bias_gradient = spec_.bias ? a.parameter_gradients[1] : nullptr;
    bias.partial_sums = partial_sums_.in(a.workspace);
    bias_backward(context_.stream, bias);
    return spec_.relu ? bias.dpre : bias.dy;
  }

  // The parameter itself if cuBLASLt can use it, by its element type and alignment, or a copy.
  const void* usable(const float* parameter, std::int64_t count, std::byte* copy) const {
    if (context_.element() == Element::fp32 && is_aligned(parameter)) return parameter;
    convert(context_.stream, Element::fp32, parameter, context_.element(), copy, count);
    return copy;
  }

  const CudaContext& context_;
  LinearSpec spec_;
  RowProduct forward_;
  RowProduct weights_;
  std::unique_ptr<RowProduct> data_;
  Workspace forward_space_, backward_space_;
  Workspace::Part<std::byte> weights_copy_, bias_copy_, backward_weights_;
  Workspace::Part<std::byte> forward_scratch_, backward_scratch_, dpre_;
  Workspace::Part<float> partial_sums_, gradient_copy_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_linear(const CudaContext& context, const LinearSpec& spec) {
  return std::make_unique<CudaLinear>(context, spec);
}

}  // namespace ddp::cuda
