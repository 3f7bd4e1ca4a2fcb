// Transposed convolutions by the kernels of the convolution whose input gradient they are: its data gradient computes
// the result, its result is the gradient of x.
#include <algorithm>

#include "backend/cuda/conv/conv.h"
#include "backend/cuda/pointwise/pointwise.h"
#include "backend/cuda/vendor/conv_kernel.h"
#include "backend/cuda/vendor/conv_plans.h"
#include "backend/workspace.h"

namespace ddp::cuda {
namespace {

class CudaConvTranspose final : public Op {
 public:
  CudaConvTranspose(const CudaContext& context, const ConvTransposeSpec& spec, const ConvKernels& kernels)
      : context_(context),
        spec_(spec),
        mirror_(spec.mirror()),
        forward_(make_kernel(ConvDirection::data, kernels.data)),
        weights_(make_kernel(ConvDirection::weights, kernels.weights)) {
    if (spec.input_gradient) data_ = make_kernel(ConvDirection::forward, kernels.forward);
    const auto bytes = [](std::size_t count) { return static_cast<std::int64_t>(count); };
    const std::int64_t weight_bytes = mirror_.weights() * bytes(bytes_of(context.element()));
    forward_packed_ = forward_space_.add<std::byte>(weight_bytes);
    forward_scratch_ = forward_space_.add<std::byte>(bytes(forward_->workspace_bytes()));
    backward_packed_ = backward_space_.add<std::byte>(weight_bytes);
    packed_gradient_ = backward_space_.add<std::byte>(weight_bytes);
    partial_sums_ = backward_space_.add<float>(spec.bias ? bias_partial_sums(rows(), spec.output_channels) : 0);
    const std::size_t scratch = std::max(weights_->workspace_bytes(), data_ ? data_->workspace_bytes() : 0);
    backward_scratch_ = backward_space_.add<std::byte>(bytes(scratch));
  }

  OpTraits traits() const override {
    return {.workspace_bytes = std::max(forward_space_.bytes(), backward_space_.bytes()), .backward_reads_inputs = {0}};
  }

  void forward(const ForwardArguments& a) override {
    void* const packed = forward_packed_.in(a.workspace);
    pack(a.parameters[0], packed);
    forward_->execute({a.y.data(), packed, a.x().data()}, forward_scratch_.in(a.workspace));
    if (!spec_.bias) return;
    add_bias(context_.stream, context_.element(), /*relu=*/false, a.y.data(), a.parameters[1], rows(),
             spec_.output_channels);
  }

  void backward(const BackwardArguments& a) override {
    if (spec_.bias) {
      BiasBackward bias;
      bias.element = context_.element();
      bias.rows = rows();
      bias.channels = spec_.output_channels;
      bias.dy = a.dy.data();
      bias.bias_gradient = a.parameter_gradients[1];
      bias.partial_sums = partial_sums_.in(a.workspace);
      bias_backward(context_.stream, bias);
    }
    void* const gradient = packed_gradient_.in(a.workspace);
    weights_->execute({a.dy.data(), gradient, a.x().data()}, backward_scratch_.in(a.workspace));
    unpack_weights(context_.stream, context_.element(), gradient, a.parameter_gradients[0], packed_shape());
    if (data_ == nullptr) return;
    void* const packed = backward_packed_.in(a.workspace);
    pack(a.parameters[0], packed);
    data_->execute({a.dy.data(), packed, a.dx().data()}, backward_scratch_.in(a.workspace));
  }

 private:
  std::unique_ptr<ConvKernel> make_kernel(ConvDirection direction, const EngineChoice& choice) const {
    return make_conv_kernel(context_, {mirror_, direction, context_.precision}, choice);
  }
  void pack(const float* weights, void* packed) const {
    pack_weights(context_.stream, weights, context_.element(), packed, packed_shape());
  }
  PackedShape packed_shape() const { return {mirror_.output_channels, group_channels(), mirror_.window.elements()}; }
  std::int64_t group_channels() const { return mirror_.input.channels / mirror_.groups; }
  std::int64_t rows() const { return spec_.batch * spec_.output().height * spec_.output().width; }

  const CudaContext& context_;
  ConvTransposeSpec spec_;
  ConvSpec mirror_;
  std::unique_ptr<ConvKernel> forward_, weights_, data_;
  Workspace forward_space_, backward_space_;
  Workspace::Part<std::byte> forward_packed_, forward_scratch_;
  Workspace::Part<std::byte> backward_packed_, packed_gradient_, backward_scratch_;
  Workspace::Part<float> partial_sums_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_conv_transpose(const CudaContext& context, const ConvTransposeSpec& spec,
                                             const ConvKernels& kernels) {
  return std::make_unique<CudaConvTranspose>(context, spec, kernels);
}

}  // namespace ddp::cuda
