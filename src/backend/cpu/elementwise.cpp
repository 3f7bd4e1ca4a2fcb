// Activations and sums: elementwise, in any layout.
#include <type_traits>

#include "backend/cpu/lanes_kernels.h"
#include "backend/cpu/operators.h"
#include "backend/cpu/planes.h"
#include "backend/cpu/values.h"

namespace ddp {
namespace {

// Spec: an ActivationSpec, or an AddSpec, whose operator has two inputs. Value: the element of activations.
template <class Spec, class Value>
class Elementwise final : public Op {
 public:
  Elementwise(const Spec& spec, Layout layout)
      : spec_(spec),
        layout_(layout),
        kernels_(of_values<Value>(lanes::kernels().elementwise.fp32, lanes::kernels().elementwise.bf16)),
        activation_(static_cast<std::size_t>(spec.activation)) {}

  bool backward_reads_y() const override { return spec_.activation != Activation::none; }
  bool in_place() const override { return true; }

  void forward(const ForwardArguments& a) override {
    each_piece(a.active, spec_.batch, spec_.shape, layout_, [&](std::int64_t at, std::int64_t count) {
      kernels_.forward[activation_](count, raw(values<Value>(a.x) + at),
                                    kAdds ? raw(values<Value>(a.x2) + at) : nullptr, raw(values<Value>(a.y) + at));
    });
  }

  void backward(const BackwardArguments& a) override {
    each_piece(a.active, spec_.batch, spec_.shape, layout_, [&](std::int64_t at, std::int64_t count) {
      kernels_.backward[activation_](count, raw(values<Value>(a.y) + at), raw(values<Value>(a.dy) + at),
                                     raw(values<Value>(a.dx) + at), kAdds ? raw(values<Value>(a.dx2) + at) : nullptr);
    });
    clear_rest(values<Value>(a.dx), a.active, spec_.batch, spec_.shape, layout_);
    if constexpr (kAdds) clear_rest(values<Value>(a.dx2), a.active, spec_.batch, spec_.shape, layout_);
  }

 private:
  static constexpr bool kAdds = std::is_same_v<Spec, AddSpec>;

  Spec spec_;
  Layout layout_;
  const lanes::ActivationKernels<Raw<Value>>& kernels_;
  std::size_t activation_;
};

}  // namespace

std::unique_ptr<Op> make_activation(const ActivationSpec& spec, Layout layout, Element element) {
  if (element == Element::bf16) return std::make_unique<Elementwise<ActivationSpec, Bf16>>(spec, layout);
  return std::make_unique<Elementwise<ActivationSpec, float>>(spec, layout);
}

std::unique_ptr<Op> make_add(const AddSpec& spec, Layout layout, Element element) {
  if (element == Element::bf16) return std::make_unique<Elementwise<AddSpec, Bf16>>(spec, layout);
  return std::make_unique<Elementwise<AddSpec, float>>(spec, layout);
}

}  // namespace ddp
