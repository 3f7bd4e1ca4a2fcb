// GELU on the CPU (backend/ops/gelu.h): every element independently, in any layout.

#include "backend/cpu/device/planes.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/pointwise/gelu_kernels.h"
#include "backend/cpu/pointwise/pointwise.h"

LANES_TABLE(GeluTable, gelu_kernels)

namespace ddp {
namespace {

class Gelu final : public Op {
 public:
  Gelu(const GeluSpec& spec, Layout layout)
      : spec_(spec), layout_(layout), kernel_(lanes::gelu_kernels().forms[static_cast<std::size_t>(spec.form)]) {}

  OpTraits traits() const override { return {.backward_reads_inputs = {0}}; }

  void forward(const ForwardArguments& a) override {
    each_piece(a.active, spec_.batch, spec_.shape, layout_, [&](std::int64_t at, std::int64_t count) {
      kernel_.forward(count, a.x().fp32() + at, a.y.fp32() + at);
    });
  }
  void backward(const BackwardArguments& a) override {
    each_piece(a.active, spec_.batch, spec_.shape, layout_, [&](std::int64_t at, std::int64_t count) {
      kernel_.backward(count, a.x().fp32() + at, a.dy.fp32() + at, a.dx().fp32() + at);
    });
    clear_rest(a.dx().fp32(), a.active, spec_.batch, spec_.shape, layout_);
  }

 private:
  GeluSpec spec_;
  Layout layout_;
  const lanes::GeluKernels& kernel_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const GeluSpec& spec, Layout layout) { return std::make_unique<Gelu>(spec, layout); }

}  // namespace ddp
