// GELU on the CPU (backend/ops/gelu.h): every element independently, in any layout.
#include <algorithm>

#include "backend/cpu/lanes_kernels.h"
#include "backend/cpu/operators.h"
#include "backend/cpu/planes.h"

namespace ddp {
namespace {

class Gelu final : public Op {
 public:
  Gelu(const GeluSpec& spec, Layout layout)
      : spec_(spec), layout_(layout), kernel_(lanes::kernels().gelu[static_cast<std::size_t>(spec.form)]) {}

  bool backward_reads_x() const override { return true; }

  void forward(const ForwardArguments& a) override {
    each_piece(a.active,
               [&](std::int64_t at, std::int64_t count) { kernel_.forward(count, a.x.fp32() + at, a.y.fp32() + at); });
  }
  void backward(const BackwardArguments& a) override {
    each_piece(a.active, [&](std::int64_t at, std::int64_t count) {
      kernel_.backward(count, a.x.fp32() + at, a.dy.fp32() + at, a.dx.fp32() + at);
    });
    clear_rest(a.dx.fp32(), a.active, spec_.batch, spec_.shape, layout_);
  }

 private:
  // Calls f(place, count) for pieces that fit the first-level cache; the threads share the pieces.
  template <class F>
  void each_piece(std::int64_t active, F f) const {
    constexpr std::int64_t kPiece = 2048;
    const std::int64_t all = stored_elements(computed_samples(active, spec_.batch, layout_), spec_.shape, layout_);
#pragma omp parallel for schedule(static)
    for (std::int64_t at = 0; at < all; at += kPiece) f(at, std::min(kPiece, all - at));
  }

  GeluSpec spec_;
  Layout layout_;
  const lanes::GeluKernels& kernel_;
};

}  // namespace

std::unique_ptr<Op> make_gelu(const GeluSpec& spec, Layout layout) { return std::make_unique<Gelu>(spec, layout); }

}  // namespace ddp
