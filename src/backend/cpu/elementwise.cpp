// Activations and sums: every element by itself, alike in every layout.
#include <type_traits>

#include "backend/arithmetic.h"
#include "backend/cpu/operators.h"
#include "backend/cpu/planes.h"

namespace ddp {
namespace {

// An activation and its gradient as types, so that each has a loop of its own that the compiler makes vectors of.
struct None {
  static float value(float x) { return x; }
  static float gradient(float /*y*/, float dy) { return dy; }
};
struct Relu {
  static float value(float x) { return relu(x); }
  static float gradient(float y, float dy) { return relu_gradient(y, dy); }
};
struct Relu6 {
  static float value(float x) { return relu6(x); }
  static float gradient(float y, float dy) { return relu6_gradient(y, dy); }
};
struct Sigmoid {
  static float value(float x) { return sigmoid(x); }
  static float gradient(float y, float dy) { return sigmoid_gradient(y, dy); }
};
struct Tanh {
  static float value(float x) { return hyperbolic_tangent(x); }
  static float gradient(float y, float dy) { return tanh_gradient(y, dy); }
};

// Calls f with the type of an activation.
template <class F>
void with_activation(Activation activation, F f) {
  switch (activation) {
    case Activation::none:
      return f(None());
    case Activation::relu:
      return f(Relu());
    case Activation::relu6:
      return f(Relu6());
    case Activation::sigmoid:
      return f(Sigmoid());
    case Activation::tanh:
      return f(Tanh());
  }
}

// Spec: an ActivationSpec, or an AddSpec, whose operator has two inputs.
template <class Spec>
class Elementwise final : public Op {
 public:
  Elementwise(const Spec& spec, Layout layout) : spec_(spec), layout_(layout) {}

  bool backward_reads_y() const override { return spec_.activation != Activation::none; }
  bool in_place() const override { return true; }

  void forward(const ForwardArguments& a) override {
    const std::int64_t count = computed_elements(a.active);
    with_activation(spec_.activation, [&](auto function) {
#pragma omp parallel for simd schedule(static)
      for (std::int64_t i = 0; i < count; ++i) {
        if constexpr (kAdds) {
          a.y[i] = function.value(a.x[i] + a.x2[i]);
        } else {
          a.y[i] = function.value(a.x[i]);
        }
      }
    });
  }

  void backward(const BackwardArguments& a) override {
    const std::int64_t count = computed_elements(a.active);
    with_activation(spec_.activation, [&](auto function) {
#pragma omp parallel for simd schedule(static)
      for (std::int64_t i = 0; i < count; ++i) {
        const float gradient = function.gradient(a.y[i], a.dy[i]);
        a.dx[i] = gradient;
        if constexpr (kAdds) a.dx2[i] = gradient;
      }
    });
    clear_rest(a.dx, a.active, spec_.batch, spec_.shape, layout_);
    if constexpr (kAdds) clear_rest(a.dx2, a.active, spec_.batch, spec_.shape, layout_);
  }

 private:
  static constexpr bool kAdds = std::is_same_v<Spec, AddSpec>;

  std::int64_t computed_elements(std::int64_t active) const {
    return stored_elements(computed_samples(active, spec_.batch, layout_), spec_.shape, layout_);
  }

  Spec spec_;
  Layout layout_;
};

}  // namespace

std::unique_ptr<Op> make_activation(const ActivationSpec& spec, Layout layout) {
  return std::make_unique<Elementwise<ActivationSpec>>(spec, layout);
}

std::unique_ptr<Op> make_add(const AddSpec& spec, Layout layout) {
  return std::make_unique<Elementwise<AddSpec>>(spec, layout);
}

}  // namespace ddp
