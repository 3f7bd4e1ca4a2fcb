#include "backend/cuda/code/parts.h"
#include "backend/cuda/conv/conv.h"
#include "backend/cuda/device/traffic.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/linear/linear_mma.h"
#include "backend/workspace.h"

namespace ddp::cuda {
namespace {

// All directions of a linear layer by linear_mma.h.
class MmaLinear final : public Op {
 public:
  MmaLinear(const CudaContext& context, const LinearSpec& spec, Layout layout)
      : context_(context),
        spec_(spec),
        parts_(parts_of(context.precision)),
        positions_(layout == Layout::nhwc ? spec.positions() : 1) {
    packed_ = space_.add<std::byte>(packed_shape().elements() * bytes_of(context.element()));
    partial_loss_ = space_.add<double>(linear_mma_partial_loss(spec));
  }

  OpTraits traits() const override {
    return {.workspace_bytes = space_.bytes(),
            .backward_reads_inputs = {0},
            .backward_reads_y = spec_.relu,
            .packed_form = packed_shape(),
            .traffic = traffic()};
  }

  void forward(const ForwardArguments& a) override {
    // Its kernel does not scale the loss.
    const bool takes = a.loss != nullptr && a.loss->loss_scale == nullptr;
    const bool loss = takes && linear_mma_takes_loss(spec_) && spec_.batch > 0;
    linear_mma_forward(context_.stream, spec_, parts_,
                       {.x = a.x().data(),
                        .packed = packed_weights(a),
                        .bias = spec_.bias ? a.parameters[1] : nullptr,
                        .y = a.y.data(),
                        .loss = loss ? &a : nullptr,
                        .partial_loss = partial_loss_.in(a.workspace)});
    if (loss) a.loss->done = true;
  }

  void backward(const BackwardArguments& a) override {
    linear_mma_backward(context_.stream, spec_, parts_,
                        {.x = a.x().data(),
                         .y = a.y.data(),
                         .dy = a.dy.data(),
                         .packed = spec_.input_gradient ? packed_weights(a) : nullptr,
                         .positions = positions_,
                         .weight_gradient = a.parameter_gradients[0],
                         .bias_gradient = spec_.bias ? a.parameter_gradients[1] : nullptr,
                         .dx = a.dx().data()});
  }

 private:
  OpTraffic traffic() const {
    const auto elements = [&](std::int64_t count) {
      return static_cast<double>(bytes_of(context_.element())) * static_cast<double>(count);
    };
    const double x = elements(spec_.batch * spec_.inputs);
    const double y = elements(spec_.batch * spec_.outputs);
    const double weights = elements(spec_.inputs * spec_.outputs);
    const double plain = sizeof(float) * static_cast<double>(spec_.inputs * spec_.outputs);
    const double gradient = spec_.relu ? 2 * y : y;
    OpTraffic traffic;
    traffic.forward += kernel({x, weights}, {y});
    traffic.backward += kernel({x, gradient}, {plain});
    if (spec_.input_gradient) traffic.backward.bytes += gradient + weights + x;
    traffic.with_loss = linear_mma_takes_loss(spec_);
    return traffic;
  }

  PackedShape packed_shape() const { return linear_mma_packed(spec_, positions_); }
  template <class Arguments>
  const void* packed_weights(const Arguments& a) const {
    if (a.packed != nullptr) return a.packed;
    pack_weights(context_.stream, a.parameters[0], context_.element(), packed_.in(a.workspace), packed_shape());
    return packed_.in(a.workspace);
  }

  const CudaContext& context_;
  LinearSpec spec_;
  std::uint32_t parts_;
  std::int64_t positions_;  // of the images in x
  Workspace space_;
  Workspace::Part<std::byte> packed_;
  Workspace::Part<double> partial_loss_;
};

}  // namespace

std::unique_ptr<Op> make_mma_linear(const CudaContext& context, const LinearSpec& spec, Layout layout) {
  return std::make_unique<MmaLinear>(context, spec, layout);
}

}  // namespace ddp::cuda
