#include "backend/cuda/conv/conv.h"
#include "backend/cuda/conv/stem_conv.h"
#include "backend/cuda/device/traffic.h"
#include "backend/workspace.h"

namespace ddp::cuda {
namespace {

// All directions of a convolution by stem_conv.h, whose blocks round the weights themselves.
class StemConv final : public Op {
 public:
  StemConv(const CudaContext& context, const ConvSpec& spec) : context_(context), spec_(spec) {
    partial_sums_ = space_.add<float>(stem_conv_partial_sums(spec));
  }

  OpTraits traits() const override {
    return {.workspace_bytes = space_.bytes(),
            .backward_reads_inputs = {0},
            .backward_reads_y = spec_.relu,
            .traffic = traffic()};
  }

  void forward(const ForwardArguments& a) override {
    stem_conv_forward(context_.stream, spec_,
                      {.x = a.x().data(),
                       .weights = a.parameters[0],
                       .bias = spec_.bias ? a.parameters[1] : nullptr,
                       .y = a.y.data()});
  }

  void backward(const BackwardArguments& a) override {
    stem_conv_backward(context_.stream, spec_,
                       {.x = a.x().data(),
                        .y = a.y.data(),
                        .dy = a.dy.data(),
                        .partial_sums = partial_sums_.in(a.workspace),
                        .weight_gradient = a.parameter_gradients[0],
                        .bias_gradient = spec_.bias ? a.parameter_gradients[1] : nullptr});
  }

 private:
  OpTraffic traffic() const {
    const auto elements = [](std::int64_t count) {
      return static_cast<double>(bytes_of(Element::bf16)) * static_cast<double>(count);
    };
    const double x = elements(spec_.batch * spec_.input.elements());
    const double y = elements(spec_.batch * spec_.output().elements());
    const double weights = sizeof(float) * static_cast<double>(spec_.weights());
    const double sums = sizeof(float) * static_cast<double>(stem_conv_partial_sums(spec_));
    OpTraffic traffic;
    traffic.forward += kernel({x, weights}, {y});
    traffic.backward += kernel({x, spec_.relu ? 2 * y : y, sums}, {sums, weights});
    return traffic;
  }

  const CudaContext& context_;
  ConvSpec spec_;
  Workspace space_;
  Workspace::Part<float> partial_sums_;
};

}  // namespace

std::unique_ptr<Op> make_stem_conv(const CudaContext& context, const ConvSpec& spec) {
  return std::make_unique<StemConv>(context, spec);
}

}  // namespace ddp::cuda
