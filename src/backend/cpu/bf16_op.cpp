// Operators on bf16 activations by way of those on fp32 ones.
#include <algorithm>
#include <array>

#include "backend/cpu/lanes_kernels.h"
#include "backend/cpu/operators.h"
#include "backend/cpu/planes.h"
#include "backend/workspace.h"

namespace ddp {
namespace {

// Elements converted at a time by one thread.
constexpr std::int64_t kConvertedPiece = 4096;

void widen(float* to, const Bf16* from, std::int64_t count) {
  const lanes::ElementwiseKernels& kernels = lanes::kernels().elementwise;
#pragma omp parallel for schedule(static)
  for (std::int64_t at = 0; at < count; at += kConvertedPiece) {
    kernels.from_bf16(std::min(kConvertedPiece, count - at), &from[at].bits, to + at);
  }
}

void narrow(Bf16* to, const float* from, std::int64_t count) {
  const lanes::ElementwiseKernels& kernels = lanes::kernels().elementwise;
#pragma omp parallel for schedule(static)
  for (std::int64_t at = 0; at < count; at += kConvertedPiece) {
    kernels.to_bf16(std::min(kConvertedPiece, count - at), from + at, &to[at].bits);
  }
}

// An activation of the wrapped operator in its workspace.
class Widened {
 public:
  Widened() = default;
  Widened(Workspace& workspace, std::int64_t batch, const Shape& shape, Layout layout)
      : shape_(shape),
        layout_(layout),
        all_(stored_elements(batch, shape, layout)),
        part_(workspace.add<float>(all_)) {}

  float* in(std::byte* workspace) const { return part_.in(workspace); }
  // The active samples; the others, which may be anything in bf16, become zero.
  float* read(std::byte* workspace, ConstActivations from, std::int64_t active) const {
    float* to = in(workspace);
    const std::int64_t count = stored_elements(active, shape_, layout_);
    widen(to, from.bf16(), count);
    std::fill(to + count, to + all_, 0.0F);
    return to;
  }
  void write(std::byte* workspace, Activations to, std::int64_t active) const {
    const std::int64_t count = stored_elements(active, shape_, layout_);
    narrow(to.bf16(), in(workspace), count);
    std::fill(to.bf16() + count, to.bf16() + all_, Bf16{});
  }

 private:
  Shape shape_{};
  Layout layout_ = Layout::plain;
  std::int64_t all_ = 0;
  Workspace::Part<float> part_;
};

// The weights of products are rounded to bf16, like the activations with which they are multiplied.
bool rounds_weights(const OpSpec& spec) {
  return std::holds_alternative<ConvSpec>(spec) || std::holds_alternative<ConvTransposeSpec>(spec) ||
         std::holds_alternative<LinearSpec>(spec);
}

class Bf16Op final : public Op {
 public:
  Bf16Op(std::unique_ptr<Op> op, const OpSpec& spec, Layout x, Layout y)
      : op_(std::move(op)), weights_(rounds_weights(spec) ? parameter_elements(spec, 0) : 0) {
    const std::int64_t batch = batch_of(spec);
    const bool second = inputs_of(spec) == 2;
    input_gradient_ = std::visit(
        [](const auto& s) {
          if constexpr (requires { s.input_gradient; }) return s.input_gradient;
          return true;
        },
        spec);
    // In the same place in both directions: x, y and the weights; dy, dx and dx2 only in backward.
    rounded_ = space_.add<Bf16>(weights_);
    widened_weights_ = space_.add<float>(weights_);
    x_ = Widened(space_, batch, input_of(spec), x);
    x2_ = second ? Widened(space_, batch, second_input_of(spec), x) : Widened();
    y_ = Widened(space_, batch, output_of(spec), y);
    dy_ = Widened(space_, batch, output_of(spec), y);
    dx_ = input_gradient_ ? Widened(space_, batch, input_of(spec), x) : Widened();
    dx2_ = second ? Widened(space_, batch, second_input_of(spec), x) : Widened();
    inner_ = space_.add<std::byte>(static_cast<std::int64_t>(op_->workspace_bytes()));
  }

  std::size_t saved_bytes() const override { return op_->saved_bytes(); }
  std::size_t workspace_bytes() const override { return space_.bytes(); }
  bool backward_reads_x() const override { return op_->backward_reads_x(); }
  bool backward_reads_x2() const override { return op_->backward_reads_x2(); }
  bool backward_reads_y() const override { return op_->backward_reads_y(); }
  // Everything is read before anything is written.
  bool in_place() const override { return op_->in_place(); }

  void forward(const ForwardArguments& a) override {
    ForwardArguments inner = a;
    inner.x = x_.read(a.workspace, a.x, a.active);
    if (a.x2 != nullptr) inner.x2 = x2_.read(a.workspace, a.x2, a.active);
    inner.y = y_.in(a.workspace);
    round_weights(a.workspace, inner.parameters);
    inner.workspace = inner_.in(a.workspace);
    op_->forward(inner);
    y_.write(a.workspace, a.y, a.active);
  }

  void backward(const BackwardArguments& a) override {
    BackwardArguments inner = a;
    inner.x = op_->backward_reads_x() ? x_.read(a.workspace, a.x, a.active) : x_.in(a.workspace);
    inner.y = op_->backward_reads_y() ? y_.read(a.workspace, a.y, a.active) : y_.in(a.workspace);
    if (op_->backward_reads_x2()) inner.x2 = x2_.read(a.workspace, a.x2, a.active);
    inner.dy = dy_.read(a.workspace, a.dy, a.active);
    if (input_gradient_) inner.dx = dx_.in(a.workspace);
    if (a.dx2 != nullptr) inner.dx2 = dx2_.in(a.workspace);
    round_weights(a.workspace, inner.parameters);
    inner.workspace = inner_.in(a.workspace);
    op_->backward(inner);
    if (input_gradient_) dx_.write(a.workspace, a.dx, a.active);
    if (a.dx2 != nullptr) dx2_.write(a.workspace, a.dx2, a.active);
  }

 private:
  void round_weights(std::byte* workspace, std::array<const float*, kMaxParameters>& parameters) const {
    if (weights_ == 0) return;
    narrow(rounded_.in(workspace), parameters[0], weights_);
    widen(widened_weights_.in(workspace), rounded_.in(workspace), weights_);
    parameters[0] = widened_weights_.in(workspace);
  }

  std::unique_ptr<Op> op_;
  bool input_gradient_ = true;
  std::int64_t weights_ = 0;
  Workspace space_;
  Workspace::Part<Bf16> rounded_;
  Workspace::Part<float> widened_weights_;
  Widened x_, x2_, y_, dy_, dx_, dx2_;
  Workspace::Part<std::byte> inner_;
};

}  // namespace

std::unique_ptr<Op> make_bf16_op(std::unique_ptr<Op> op, const OpSpec& spec, Layout x, Layout y) {
  return std::make_unique<Bf16Op>(std::move(op), spec, x, y);
}

void cpu_add_bf16(Bf16* sum, const Bf16* addend, std::int64_t count) {
  constexpr std::size_t kChunk = 1024;
  const lanes::ElementwiseKernels& kernels = lanes::kernels().elementwise;
  std::array<float, kChunk> left{};
  std::array<float, kChunk> right{};
  for (std::int64_t at = 0; at < count; at += static_cast<std::int64_t>(kChunk)) {
    const std::int64_t some = std::min(static_cast<std::int64_t>(kChunk), count - at);
    kernels.from_bf16(some, &sum[at].bits, left.data());
    kernels.from_bf16(some, &addend[at].bits, right.data());
    for (std::int64_t i = 0; i < some; ++i) left[static_cast<std::size_t>(i)] += right[static_cast<std::size_t>(i)];
    kernels.to_bf16(some, left.data(), &sum[at].bits);
  }
}

}  // namespace ddp
