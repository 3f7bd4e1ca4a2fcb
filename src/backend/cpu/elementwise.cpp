// Activations and sums: elementwise, in any layout.
#include <type_traits>

#include "backend/cpu/lanes_kernels.h"
#include "backend/cpu/operators.h"
#include "backend/cpu/planes.h"

namespace ddp {
namespace {

// Spec: an ActivationSpec, or an AddSpec, whose operator has two inputs.
template <class Spec>
class Elementwise final : public Op {
 public:
  Elementwise(const Spec& spec, Layout layout)
      : spec_(spec),
        layout_(layout),
        kernels_(lanes::kernels().elementwise),
        activation_(static_cast<std::size_t>(spec.activation)) {}

  bool backward_reads_y() const override { return spec_.activation != Activation::none; }
  bool in_place() const override { return true; }

  void forward(const ForwardArguments& a) override {
    each_piece(a.active, spec_.batch, spec_.shape, layout_, [&](std::int64_t at, std::int64_t count) {
      kernels_.forward[activation_](count, a.x.fp32() + at, kAdds ? a.x2.fp32() + at : nullptr, a.y.fp32() + at);
    });
  }

  void backward(const BackwardArguments& a) override {
    each_piece(a.active, spec_.batch, spec_.shape, layout_, [&](std::int64_t at, std::int64_t count) {
      kernels_.backward[activation_](count, a.y.fp32() + at, a.dy.fp32() + at, a.dx.fp32() + at,
                                     kAdds ? a.dx2.fp32() + at : nullptr);
    });
    clear_rest(a.dx.fp32(), a.active, spec_.batch, spec_.shape, layout_);
    if constexpr (kAdds) clear_rest(a.dx2.fp32(), a.active, spec_.batch, spec_.shape, layout_);
  }

 private:
  static constexpr bool kAdds = std::is_same_v<Spec, AddSpec>;

  Spec spec_;
  Layout layout_;
  const lanes::ElementwiseKernels& kernels_;
  std::size_t activation_;
};

}  // namespace

std::unique_ptr<Op> make_activation(const ActivationSpec& spec, Layout layout) {
  return std::make_unique<Elementwise<ActivationSpec>>(spec, layout);
}

std::unique_ptr<Op> make_add(const AddSpec& spec, Layout layout) {
  return std::make_unique<Elementwise<AddSpec>>(spec, layout);
}

}  // namespace ddp
