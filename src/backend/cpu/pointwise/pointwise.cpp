// Pointwise functions and products on the CPU (backend/ops/pointwise.h, product.h), in any layout.

#include "backend/cpu/pointwise/pointwise.h"

#include "backend/cpu/device/planes.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/pointwise/pointwise_kernels.h"

LANES_TABLE(PointwiseTable, pointwise_kernels)

namespace ddp {
namespace {

class Pointwise final : public Op {
 public:
  Pointwise(const PointwiseSpec& spec, Layout layout)
      : spec_(spec),
        layout_(layout),
        kernel_(lanes::pointwise_kernels().functions[static_cast<std::size_t>(spec.function)]) {}

  OpTraits traits() const override { return {.backward_reads_inputs = {0}}; }

  void forward(const ForwardArguments& a) override {
    each_piece(a.active, spec_.batch, spec_.shape, layout_, [&](std::int64_t at, std::int64_t count) {
      kernel_.forward(count, spec_.alpha, a.x().fp32() + at, a.y.fp32() + at);
    });
  }
  void backward(const BackwardArguments& a) override {
    each_piece(a.active, spec_.batch, spec_.shape, layout_, [&](std::int64_t at, std::int64_t count) {
      kernel_.backward(count, spec_.alpha, a.x().fp32() + at, a.dy.fp32() + at, a.dx().fp32() + at);
    });
    clear_rest(a.dx().fp32(), a.active, spec_.batch, spec_.shape, layout_);
  }

 private:
  PointwiseSpec spec_;
  Layout layout_;
  const lanes::PointwiseKernels& kernel_;
};

// A factor per element is one position with as many factors as elements.
class Product final : public Op {
 public:
  Product(const ProductSpec& spec, Layout layout)
      : spec_(spec), layout_(layout), kernels_(lanes::pointwise_kernels().product) {}

  OpTraits traits() const override { return {.backward_reads_inputs = {0, 1}}; }

  void forward(const ForwardArguments& a) override {
    each_part(a.active, [&](std::int64_t at, std::int64_t factor, std::int64_t positions, std::int64_t inner) {
      kernels_.forward(positions, inner, a.x().fp32() + at, a.inputs[1].fp32() + factor, a.y.fp32() + at);
    });
  }
  void backward(const BackwardArguments& a) override {
    each_part(a.active, [&](std::int64_t at, std::int64_t factor, std::int64_t positions, std::int64_t inner) {
      kernels_.backward(positions, inner, a.x().fp32() + at, a.inputs[1].fp32() + factor, a.dy.fp32() + at,
                        a.dx().fp32() + at, a.input_gradients[1].fp32() + factor);
    });
    clear_rest(a.dx().fp32(), a.active, spec_.batch, spec_.shape, layout_);
    clear_rest(a.input_gradients[1].fp32(), a.active, spec_.batch, spec_.further_input(1), layout_);
  }

 private:
  // Calls f with offsets into x and x2 and the extents of a part; every factor belongs to one part.
  template <class F>
  void each_part(std::int64_t active, F f) const {
    if (!spec_.per_channel) {
      each_piece(active, spec_.batch, spec_.shape, layout_,
                 [&](std::int64_t at, std::int64_t count) { f(at, at, 1, count); });
      return;
    }
    const Planes planes = planes_of(computed_samples(active, spec_.batch, layout_), spec_.shape, layout_);
    const std::int64_t positions = spec_.shape.height * spec_.shape.width;
#pragma omp parallel for schedule(static)
    for (std::int64_t plane = 0; plane < planes.outer; ++plane) {
      f(plane * positions * planes.inner, plane * planes.inner, positions, planes.inner);
    }
  }

  ProductSpec spec_;
  Layout layout_;
  const lanes::ProductKernels& kernels_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const PointwiseSpec& spec, Layout layout) {
  return std::make_unique<Pointwise>(spec, layout);
}

std::unique_ptr<Op> make_cpu_op(const ProductSpec& spec, Layout layout) {
  return std::make_unique<Product>(spec, layout);
}

}  // namespace ddp
