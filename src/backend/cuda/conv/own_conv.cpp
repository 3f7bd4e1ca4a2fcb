#include "backend/cuda/code/parts.h"
#include "backend/cuda/conv/conv.h"
#include "backend/cuda/conv/conv_mma.h"
#include "backend/cuda/device/traffic.h"
#include "backend/workspace.h"

namespace ddp::cuda {
namespace {

// All directions of a convolution by conv_mma.h.
class MmaConv final : public Op {
 public:
  MmaConv(const CudaContext& context, const ConvSpec& spec)
      : context_(context), spec_(spec), parts_(parts_of(context.precision)) {
    open_ = saved_.add<std::uint8_t>(spec.average_pool ? spec.batch * spec.output().elements() : 0);
    packed_ = space_.add<std::byte>(packed_shape().elements() * bytes_of(context.element()));
    partial_sums_ = space_.add<float>(conv_mma_partial_sums(spec, parts_));
  }

  OpTraits traits() const override {
    return {.saved_bytes = saved_.bytes(),
            .workspace_bytes = space_.bytes(),
            .backward_reads_inputs = {0},
            .backward_reads_y = spec_.relu && !spec_.average_pool,
            .adds_to_dx = spec_.input_gradient,
            .packed_form = packed_shape(),
            .traffic = traffic()};
  }

  void forward(const ForwardArguments& a) override {
    conv_mma_forward(context_.stream, spec_, parts_,
                     {.x = a.x().data(),
                      .packed = packed_weights(a),
                      .bias = spec_.bias ? a.parameters[1] : nullptr,
                      .y = a.y.data(),
                      .open = a.saved != nullptr ? open_.in(a.saved) : nullptr});
  }

  void backward(const BackwardArguments& a) override {
    const ConvMmaGradient gradient{.dy = a.dy.data(), .y = a.y.data(), .open = open_.in(a.saved)};
    conv_mma_backward(context_.stream, spec_, parts_, gradient,
                      {.x = a.x().data(),
                       .packed = spec_.input_gradient ? packed_weights(a) : nullptr,
                       .partial_sums = partial_sums_.in(a.workspace),
                       .weight_gradient = a.parameter_gradients[0],
                       .bias_gradient = spec_.bias ? a.parameter_gradients[1] : nullptr,
                       .dx = a.dx().data(),
                       .add = a.add_to_dx});
  }

 private:
  OpTraffic traffic() const {
    const auto elements = [&](std::int64_t count) {
      return static_cast<double>(bytes_of(context_.element())) * static_cast<double>(count);
    };
    const auto parts = [&](std::int64_t count) {
      return static_cast<double>(bytes_of(Element::bf16) * parts_) * static_cast<double>(count);
    };
    const double x = elements(spec_.batch * spec_.input.elements());
    const double y = elements(spec_.batch * spec_.output().elements());
    const double open = spec_.average_pool ? static_cast<double>(spec_.batch * spec_.output().elements()) : 0;
    const double plain = sizeof(float) * static_cast<double>(spec_.weights());
    const double packed = parts(packed_shape().fragments(false).elements());
    const double packed_for_data = parts(packed_shape().fragments(true).elements());
    const double sums = sizeof(float) * static_cast<double>(conv_mma_partial_sums(spec_, parts_));
    const double gradient = y + (spec_.average_pool ? open : spec_.relu ? y : 0);
    OpTraffic traffic;
    traffic.forward += kernel({x, packed}, {y, open});
    traffic.backward += kernel({x, gradient, sums}, {sums, plain});
    if (spec_.input_gradient) traffic.backward.bytes += gradient + packed_for_data + x;
    return traffic;
  }

  PackedShape packed_shape() const { return conv_mma_packed(spec_, parts_); }
  template <class Arguments>
  const void* packed_weights(const Arguments& a) const {
    if (a.packed != nullptr) return a.packed;
    pack_weights(context_.stream, a.parameters[0], context_.element(), packed_.in(a.workspace), packed_shape());
    return packed_.in(a.workspace);
  }

  const CudaContext& context_;
  ConvSpec spec_;
  std::uint32_t parts_;
  Workspace saved_, space_;
  Workspace::Part<std::byte> packed_;
  Workspace::Part<std::uint8_t> open_;
  Workspace::Part<float> partial_sums_;
};

}  // namespace

std::unique_ptr<Op> make_mma_conv(const CudaContext& context, const ConvSpec& spec) {
  return std::make_unique<MmaConv>(context, spec);
}

}  // namespace ddp::cuda
