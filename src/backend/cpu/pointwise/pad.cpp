// Reflected and replicated borders on the CPU (backend/ops/pad.h), in any layout.
#include <algorithm>
#include <vector>

#include "backend/cpu/device/planes.h"
#include "backend/cpu/pointwise/pointwise.h"

namespace ddp {
namespace {

class Pad final : public Op {
 public:
  Pad(const PadSpec& spec, Layout layout) : spec_(spec), layout_(layout) {
    const Shape out = spec.output();
    for (std::int64_t i = 0; i < out.height; ++i) {
      rows_.push_back(padded_source(i - spec.padding.top, spec.input.height, spec.mode));
    }
    for (std::int64_t j = 0; j < out.width; ++j) {
      columns_.push_back(padded_source(j - spec.padding.left, spec.input.width, spec.mode));
    }
  }

  void forward(const ForwardArguments& a) override {
    each_element(a.active, [&](std::int64_t padded, std::int64_t source, std::int64_t count) {
      std::copy_n(a.x().fp32() + source, count, a.y.fp32() + padded);
    });
  }

  void backward(const BackwardArguments& a) override {
    float* const dx = a.dx().fp32();
    std::fill_n(dx, stored_elements(spec_.batch, spec_.input, layout_), 0.0F);
    each_element(a.active, [&](std::int64_t padded, std::int64_t source, std::int64_t count) {
      const float* const dy = a.dy.fp32() + padded;
      for (std::int64_t k = 0; k < count; ++k) dx[source + k] += dy[k];
    });
    clear_rest(dx, a.active, spec_.batch, spec_.input, layout_);
  }

 private:
  // Calls f(offset in the padded image, offset in the image, values) for each position; planes are independent.
  template <class F>
  void each_element(std::int64_t active, F f) const {
    const Planes view = planes_of(computed_samples(active, spec_.batch, layout_), spec_.input, layout_);
#pragma omp parallel for schedule(static)
    for (std::int64_t p = 0; p < view.outer; ++p) {
      std::int64_t padded = p * static_cast<std::int64_t>(rows_.size() * columns_.size()) * view.inner;
      for (const std::int64_t row : rows_) {
        const std::int64_t line = (p * spec_.input.height + row) * spec_.input.width;
        for (const std::int64_t column : columns_) {
          f(padded, (line + column) * view.inner, view.inner);
          padded += view.inner;
        }
      }
    }
  }

  PadSpec spec_;
  Layout layout_;
  std::vector<std::int64_t> rows_;  // the row of the image that each row of the result shows
  std::vector<std::int64_t> columns_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const PadSpec& spec, Layout layout) { return std::make_unique<Pad>(spec, layout); }

}  // namespace ddp
