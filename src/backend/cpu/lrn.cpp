#include <algorithm>
#include <cmath>

#include "backend/cpu/operators.h"
#include "backend/cpu/planes.h"
#include "backend/workspace.h"

namespace ddp {
namespace {

// s^-beta; the usual exponents by roots, which are vector instructions.
float inverse_power(float s, float beta) {
  if (beta == 0.75F) return 1.0F / (std::sqrt(s) * std::sqrt(std::sqrt(s)));
  if (beta == 0.5F) return 1.0F / std::sqrt(s);
  return std::pow(s, -beta);
}

// A layout seen as rows that the sum over channels runs across: channel c of a group lies at c * stride, `width` values
// side by side.
struct Rows {
  std::int64_t groups;
  std::int64_t stride;
  std::int64_t width;
};

class Lrn final : public Op {
 public:
  Lrn(const LrnSpec& spec, Layout layout) : spec_(spec), layout_(layout) {
    terms_ = workspace_.add<float>(stored_elements(spec.batch, spec.shape, layout));
  }

  // The sums that were raised to a power.
  std::size_t saved_bytes() const override {
    return static_cast<std::size_t>(stored_elements(spec_.batch, spec_.shape, layout_)) * sizeof(float);
  }
  std::size_t workspace_bytes() const override { return workspace_.bytes(); }
  bool backward_reads_x() const override { return true; }

  void forward(const ForwardArguments& a) override {
    auto* sums = static_cast<float*>(static_cast<void*>(a.saved));
    const Rows rows = rows_of(a.active);
    const float share = spec_.alpha / static_cast<float>(spec_.size);
    const std::int64_t before = spec_.size / 2;
    const std::int64_t after = (spec_.size - 1) / 2;
#pragma omp parallel for collapse(2) schedule(static)
    for (std::int64_t g = 0; g < rows.groups; ++g) {
      for (std::int64_t c = 0; c < spec_.shape.channels; ++c) {
        const std::int64_t row = g * spec_.shape.channels * rows.width + c * rows.stride;
        const float* x = a.x + row;
        float* s = sums + row;
        std::fill_n(s, rows.width, spec_.k);
        each_neighbour(c, before, after, [&](std::int64_t distance) {
          const float* other = x + distance * rows.stride;
          for (std::int64_t i = 0; i < rows.width; ++i) s[i] += share * other[i] * other[i];
        });
        for (std::int64_t i = 0; i < rows.width; ++i) a.y[row + i] = x[i] * inverse_power(s[i], spec_.beta);
      }
    }
  }

  // dx = dy s^-beta - 2 beta alpha / size x (sum over the channels whose windows have it of dy x s^(-beta - 1)).
  void backward(const BackwardArguments& a) override {
    const auto* sums = static_cast<const float*>(static_cast<const void*>(a.saved));
    float* terms = terms_.in(a.workspace);
    const Rows rows = rows_of(a.active);
    const std::int64_t count = rows.groups * spec_.shape.channels * rows.width;
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) {
      const float power = inverse_power(sums[i], spec_.beta);
      a.dx[i] = a.dy[i] * power;
      terms[i] = a.dy[i] * a.x[i] * power / sums[i];
    }
    const float factor = 2 * spec_.beta * spec_.alpha / static_cast<float>(spec_.size);
    const std::int64_t before = (spec_.size - 1) / 2;
    const std::int64_t after = spec_.size / 2;
#pragma omp parallel for collapse(2) schedule(static)
    for (std::int64_t g = 0; g < rows.groups; ++g) {
      for (std::int64_t c = 0; c < spec_.shape.channels; ++c) {
        const std::int64_t row = g * spec_.shape.channels * rows.width + c * rows.stride;
        each_neighbour(c, before, after, [&](std::int64_t distance) {
          const float* other = terms + row + distance * rows.stride;
          for (std::int64_t i = 0; i < rows.width; ++i) a.dx[row + i] -= factor * a.x[row + i] * other[i];
        });
      }
    }
    clear_rest(a.dx, a.active, spec_.batch, spec_.shape, layout_);
  }

 private:
  // Calls f(distance) for the channels from `before` before to `after` after channel c.
  template <class F>
  void each_neighbour(std::int64_t c, std::int64_t before, std::int64_t after, F f) const {
    const std::int64_t last = std::min(after, spec_.shape.channels - 1 - c);
    for (std::int64_t distance = -std::min(before, c); distance <= last; ++distance) f(distance);
  }

  Rows rows_of(std::int64_t active) const {
    const std::int64_t samples = computed_samples(active, spec_.batch, layout_);
    const std::int64_t plane = spec_.shape.height * spec_.shape.width;
    switch (layout_) {
      case Layout::plain:
        return {samples, plane, plane};
      case Layout::nhwc:
        return {samples * plane, 1, 1};
      case Layout::lanes16:
        break;
    }
    return {(samples + kLanes - 1) / kLanes, plane * kLanes, plane * kLanes};
  }

  LrnSpec spec_;
  Layout layout_;
  Workspace workspace_;
  Workspace::Part<float> terms_;
};

}  // namespace

std::unique_ptr<Op> make_lrn(const LrnSpec& spec, Layout layout) { return std::make_unique<Lrn>(spec, layout); }

}  // namespace ddp
