#include "backend/arithmetic.h"
#include "backend/cpu/operators.h"
#include "backend/cpu/planes.h"

namespace ddp {
namespace {

class Relu final : public Op {
 public:
  Relu(const ReluSpec& spec, Layout layout) : spec_(spec), layout_(layout) {}

  bool backward_reads_y() const override { return true; }
  bool in_place() const override { return true; }

  void forward(const ForwardArguments& a) override {
    const std::int64_t count = computed_elements(a.active);
#pragma omp parallel for simd schedule(static)
    for (std::int64_t i = 0; i < count; ++i) a.y[i] = relu(a.x[i]);
  }

  void backward(const BackwardArguments& a) override {
    const std::int64_t count = computed_elements(a.active);
#pragma omp parallel for simd schedule(static)
    for (std::int64_t i = 0; i < count; ++i) a.dx[i] = relu_gradient(a.y[i], a.dy[i]);
  }

 private:
  std::int64_t computed_elements(std::int64_t active) const {
    return stored_elements(computed_samples(active, spec_.batch, layout_), spec_.shape, layout_);
  }

  ReluSpec spec_;
  Layout layout_;
};

}  // namespace

std::unique_ptr<Op> make_relu(const ReluSpec& spec, Layout layout) { return std::make_unique<Relu>(spec, layout); }

}  // namespace ddp
