// Activations and sums: elementwise, in any layout.
#include <algorithm>
#include <array>
#include <type_traits>

#include "backend/cpu/device/planes.h"
#include "backend/cpu/device/values.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/pointwise/elementwise_kernels.h"
#include "backend/cpu/pointwise/pointwise.h"
#include "backend/cpu/update/update.h"

LANES_BF16_TABLE(ElementwiseKernels, elementwise_kernels)

namespace ddp {
namespace {

// Spec: an ActivationSpec, or an AddSpec, whose operator has two inputs. Value: the element of activations.
template <class Spec, class Value>
class Elementwise final : public Op {
 public:
  Elementwise(const Spec& spec, Layout layout)
      : spec_(spec),
        layout_(layout),
        kernels_(of_values<Value>(lanes::elementwise_kernels().fp32, lanes::elementwise_kernels().bf16)),
        activation_(static_cast<std::size_t>(spec.activation)) {}

  OpTraits traits() const override {
    return {.backward_reads_y = spec_.activation != Activation::none, .in_place = true};
  }

  void forward(const ForwardArguments& a) override {
    each_piece(a.active, spec_.batch, spec_.shape, layout_, [&](std::int64_t at, std::int64_t count) {
      kernels_.forward[activation_](count, raw(values<Value>(a.x()) + at),
                                    kAdds ? raw(values<Value>(a.inputs[1]) + at) : nullptr,
                                    raw(values<Value>(a.y) + at));
    });
  }

  void backward(const BackwardArguments& a) override {
    each_piece(a.active, spec_.batch, spec_.shape, layout_, [&](std::int64_t at, std::int64_t count) {
      kernels_.backward[activation_](count, raw(values<Value>(a.y) + at), raw(values<Value>(a.dy) + at),
                                     raw(values<Value>(a.dx()) + at),
                                     kAdds ? raw(values<Value>(a.input_gradients[1]) + at) : nullptr);
    });
    clear_rest(values<Value>(a.dx()), a.active, spec_.batch, spec_.shape, layout_);
    if constexpr (kAdds) clear_rest(values<Value>(a.input_gradients[1]), a.active, spec_.batch, spec_.shape, layout_);
  }

 private:
  static constexpr bool kAdds = std::is_same_v<Spec, AddSpec>;

  Spec spec_;
  Layout layout_;
  const lanes::ActivationKernels<Raw<Value>>& kernels_;
  std::size_t activation_;
};

// By way of floats in the first-level cache; `count` is at most kAddedPiece.
constexpr std::int64_t kAddedPiece = 8192;
void add_fp16(Fp16* sum, const Fp16* addend, std::int64_t count) {
  const lanes::ElementwiseKernels& kernels = lanes::elementwise_kernels();
  std::array<float, kAddedPiece> left;
  std::array<float, kAddedPiece> right;
  kernels.from_fp16(count, &sum->bits, left.data());
  kernels.from_fp16(count, &addend->bits, right.data());
  cpu_add(left.data(), right.data(), static_cast<std::size_t>(count));
  kernels.to_fp16(count, left.data(), &sum->bits);
}

}  // namespace

void cpu_add_activations(Activations sum, ConstActivations addend, std::int64_t count) {
  constexpr auto kNone = static_cast<std::size_t>(Activation::none);
  const lanes::ElementwiseKernels& kernels = lanes::elementwise_kernels();
#pragma omp parallel for schedule(static)
  for (std::int64_t at = 0; at < count; at += kAddedPiece) {
    const std::int64_t some = std::min(kAddedPiece, count - at);
    switch (sum.element()) {
      case Element::fp32:
        kernels.fp32.forward[kNone](some, sum.fp32() + at, addend.fp32() + at, sum.fp32() + at);
        break;
      case Element::bf16:
        kernels.bf16.forward[kNone](some, raw(sum.bf16() + at), raw(addend.bf16() + at), raw(sum.bf16() + at));
        break;
      case Element::fp16:
        add_fp16(sum.fp16() + at, addend.fp16() + at, some);
        break;
    }
  }
}

std::unique_ptr<Op> make_activation(const ActivationSpec& spec, Layout layout, Element element) {
  if (element == Element::bf16) return std::make_unique<Elementwise<ActivationSpec, Bf16>>(spec, layout);
  return std::make_unique<Elementwise<ActivationSpec, float>>(spec, layout);
}

std::unique_ptr<Op> make_add(const AddSpec& spec, Layout layout, Element element) {
  if (element == Element::bf16) return std::make_unique<Elementwise<AddSpec, Bf16>>(spec, layout);
  return std::make_unique<Elementwise<AddSpec, float>>(spec, layout);
}

}  // namespace ddp
