// Operators on bf16 or fp16 activations by way of those on fp32 ones.
#include <algorithm>
#include <span>
#include <vector>

#include "backend/cpu/device/planes.h"
#include "backend/cpu/device/values.h"
#include "backend/cpu/pointwise/elementwise_kernels.h"
#include "backend/cpu/pointwise/pointwise.h"
#include "backend/workspace.h"
#include "base/error.h"

namespace ddp {
namespace {

// Elements converted at a time by one thread.
constexpr std::int64_t kConvertedPiece = 4096;

template <class From, class To>
void convert(std::int64_t count, void (*kernel)(std::int64_t, const From*, To*), const From* from, To* to) {
#pragma omp parallel for schedule(static)
  for (std::int64_t at = 0; at < count; at += kConvertedPiece) {
    kernel(std::min(kConvertedPiece, count - at), from + at, to + at);
  }
}

template <class Half>
void widen(float* to, const Half* from, std::int64_t count) {
  const lanes::ElementwiseKernels& kernels = lanes::elementwise_kernels();
  convert(count, std::is_same_v<Half, Bf16> ? kernels.from_bf16 : kernels.from_fp16, &from->bits, to);
}

template <class Half>
void narrow(Half* to, const float* from, std::int64_t count) {
  const lanes::ElementwiseKernels& kernels = lanes::elementwise_kernels();
  convert(count, std::is_same_v<Half, Bf16> ? kernels.to_bf16 : kernels.to_fp16, from, &to->bits);
}

// An activation of the wrapped operator in its workspace.
template <class Half>
class Widened {
 public:
  Widened() = default;
  Widened(Workspace& workspace, std::int64_t batch, const Shape& shape, Layout layout)
      : shape_(shape),
        layout_(layout),
        all_(stored_elements(batch, shape, layout)),
        part_(workspace.add<float>(all_)) {}

  float* in(std::byte* workspace) const { return part_.in(workspace); }
  // The active samples; the others, which may be anything before, become zero.
  float* read(std::byte* workspace, ConstActivations from, std::int64_t active) const {
    float* to = in(workspace);
    const std::int64_t count = stored_elements(active, shape_, layout_);
    widen(to, values<Half>(from), count);
    std::fill(to + count, to + all_, 0.0F);
    return to;
  }
  void write(std::byte* workspace, Activations to, std::int64_t active) const {
    const std::int64_t count = stored_elements(active, shape_, layout_);
    Half* const all = values<Half>(to);
    narrow(all, in(workspace), count);
    std::fill(all + count, all + all_, Half{});
  }

 private:
  Shape shape_{};
  Layout layout_ = Layout::plain;
  std::int64_t all_ = 0;
  Workspace::Part<float> part_;
};

// The weights of products are rounded, like the activations with which they are multiplied.
bool rounds_weights(const OpSpec& spec) {
  return std::holds_alternative<ConvSpec>(spec) || std::holds_alternative<ConvTransposeSpec>(spec) ||
         std::holds_alternative<LinearSpec>(spec);
}

template <class Half>
class HalfOp final : public Op {
 public:
  HalfOp(std::unique_ptr<Op> op, const OpSpec& spec, Layout x, Layout y)
      : op_(std::move(op)),
        traits_(op_->traits()),
        weights_(rounds_weights(spec) ? parameter_elements(spec, 0) : 0),
        rounded_(space_.add<Half>(weights_)),
        widened_weights_(space_.add<float>(weights_)),
        y_(space_, batch_of(spec), output_of(spec), y),
        dy_(space_, batch_of(spec), output_of(spec), y) {
    for (const Shape& shape : input_shapes({&spec, 1})) {
      inputs_.emplace_back(space_, batch_of(spec), shape, x);
      if (has_input_gradient(spec)) gradients_.emplace_back(space_, batch_of(spec), shape, x);
    }
    wide_inputs_.resize(inputs_.size());
    wide_gradients_.resize(gradients_.size());
    inner_ = space_.add<std::byte>(static_cast<std::int64_t>(traits_.workspace_bytes));
  }

  OpTraits traits() const override {
    return {.saved_bytes = traits_.saved_bytes,
            .workspace_bytes = space_.bytes(),
            .backward_reads_inputs = traits_.backward_reads_inputs,
            .backward_reads_y = traits_.backward_reads_y,
            .in_place = traits_.in_place};
  }

  void forward(const ForwardArguments& a) override {
    ForwardArguments inner = a;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      wide_inputs_[i] = inputs_[i].read(a.workspace, a.inputs[i], a.active);
    }
    inner.inputs = list(wide_inputs_);
    inner.y = y_.in(a.workspace);
    inner.parameters = rounded_weights(a.workspace, a.parameters);
    inner.workspace = inner_.in(a.workspace);
    op_->forward(inner);
    y_.write(a.workspace, a.y, a.active);
  }

  void backward(const BackwardArguments& a) override {
    BackwardArguments inner = a;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      wide_inputs_[i] =
          traits_.reads_input(i) ? inputs_[i].read(a.workspace, a.inputs[i], a.active) : inputs_[i].in(a.workspace);
    }
    for (std::size_t i = 0; i < gradients_.size(); ++i) wide_gradients_[i] = gradients_[i].in(a.workspace);
    inner.inputs = list(wide_inputs_);
    inner.input_gradients = ArgumentList<Activations>(std::span<const Activations>(wide_gradients_));
    inner.y = traits_.backward_reads_y ? y_.read(a.workspace, a.y, a.active) : y_.in(a.workspace);
    inner.dy = dy_.read(a.workspace, a.dy, a.active);
    inner.parameters = rounded_weights(a.workspace, a.parameters);
    inner.workspace = inner_.in(a.workspace);
    op_->backward(inner);
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      gradients_[i].write(a.workspace, a.input_gradients[i], a.active);
    }
  }

 private:
  static ArgumentList<ConstActivations> list(const std::vector<ConstActivations>& all) {
    return ArgumentList<ConstActivations>(std::span<const ConstActivations>(all));
  }

  // The operators whose weights are rounded have a bias beside them at most.
  ArgumentList<const float*> rounded_weights(std::byte* workspace, const ArgumentList<const float*>& parameters) const {
    if (weights_ == 0) return parameters;
    narrow(rounded_.in(workspace), parameters[0], weights_);
    widen(widened_weights_.in(workspace), rounded_.in(workspace), weights_);
    DDP_ASSERT(parameters.size() <= ArgumentList<const float*>::kHeld);
    return {widened_weights_.in(workspace), parameters[1], parameters[2]};
  }

  std::unique_ptr<Op> op_;
  OpTraits traits_;  // of op_
  std::int64_t weights_;
  // In the same place in both directions: inputs, y and the weights; gradients only in backward.
  Workspace space_;
  Workspace::Part<Half> rounded_;
  Workspace::Part<float> widened_weights_;
  Widened<Half> y_, dy_;
  std::vector<Widened<Half>> inputs_, gradients_;  // no gradients if none are needed
  std::vector<ConstActivations> wide_inputs_;      // the memory of lists
  std::vector<Activations> wide_gradients_;
  Workspace::Part<std::byte> inner_;
};

}  // namespace

std::unique_ptr<Op> make_half_op(std::unique_ptr<Op> op, const OpSpec& spec, Layout x, Layout y, Element element) {
  if (element == Element::fp16) return std::make_unique<HalfOp<Fp16>>(std::move(op), spec, x, y);
  return std::make_unique<HalfOp<Bf16>>(std::move(op), spec, x, y);
}

void cpu_convert(Activations to, ConstActivations from, std::int64_t count) {
  // By one thread, which may be the one that communicates.
  const lanes::ElementwiseKernels& kernels = lanes::elementwise_kernels();
  if (to.element() == Element::fp16) return kernels.to_fp16(count, from.fp32(), &to.fp16()->bits);
  if (to.element() == Element::bf16) return kernels.to_bf16(count, from.fp32(), &to.bf16()->bits);
  if (from.element() == Element::fp16) return kernels.from_fp16(count, &from.fp16()->bits, to.fp32());
  kernels.from_bf16(count, &from.bf16()->bits, to.fp32());
}

}  // namespace ddp
