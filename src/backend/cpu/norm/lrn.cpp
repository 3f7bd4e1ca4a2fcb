#include <algorithm>

#include "backend/cpu/device/planes.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/norm/lrn_kernels.h"
#include "backend/cpu/norm/norm.h"
#include "backend/workspace.h"

LANES_TABLE(LrnKernels, lrn_kernels)

namespace ddp {
namespace {

// A view of a layout as rows of `width` contiguous values of one channel; each of `groups` groups contains all channels
// in order. If the width is 1, the channels themselves are contiguous.
struct Rows {
  std::int64_t groups;
  std::int64_t width;
};

class Lrn final : public Op {
 public:
  Lrn(const LrnSpec& spec, Layout layout) : spec_(spec), layout_(layout), kernels_(lanes::lrn_kernels()) {
    terms_ = workspace_.add<float>(stored_elements(spec.batch, spec.shape, layout));
  }

  // The saved sums, before raising to the power.
  OpTraits traits() const override {
    return {.saved_bytes = static_cast<std::size_t>(stored_elements(spec_.batch, spec_.shape, layout_)) * sizeof(float),
            .workspace_bytes = workspace_.bytes(),
            .backward_reads_inputs = {0}};
  }

  void forward(const ForwardArguments& a) override {
    auto* sums = static_cast<float*>(static_cast<void*>(a.saved));
    const float share = spec_.alpha / static_cast<float>(spec_.size);
    each_window(rows_of(a.active), spec_.size / 2, (spec_.size - 1) / 2,
                [&](const lanes::LrnWindow& window, std::int64_t at) {
                  kernels_.forward(window, a.x().fp32() + at, share, spec_.k, spec_.beta, sums + at, a.y.fp32() + at);
                });
  }

  // dx = dy s^-beta - 2 beta alpha / size x (sum of dy x s^(-beta - 1) over the channels whose windows contain it).
  void backward(const BackwardArguments& a) override {
    const auto* sums = static_cast<const float*>(static_cast<const void*>(a.saved));
    float* terms = terms_.in(a.workspace);
    const Rows rows = rows_of(a.active);
    const std::int64_t count = rows.groups * spec_.shape.channels * rows.width;
#pragma omp parallel for schedule(static)
    for (std::int64_t first = 0; first < count; first += kPiece) {
      kernels_.terms(std::min(kPiece, count - first), a.x().fp32() + first, sums + first, a.dy.fp32() + first,
                     spec_.beta, a.dx().fp32() + first, terms + first);
    }
    const float factor = 2 * spec_.beta * spec_.alpha / static_cast<float>(spec_.size);
    each_window(rows, (spec_.size - 1) / 2, spec_.size / 2, [&](const lanes::LrnWindow& window, std::int64_t at) {
      kernels_.backward(window, a.x().fp32() + at, terms + at, factor, a.dx().fp32() + at);
    });
    clear_rest(a.dx().fp32(), a.active, spec_.batch, spec_.shape, layout_);
  }

 private:
  static constexpr std::int64_t kPiece = 4096;

  // Calls f(window, index of its first value) for all values, with windows from `before` channels before to `after`
  // channels after.
  template <class F>
  void each_window(const Rows& rows, std::int64_t before, std::int64_t after, F f) const {
    const std::int64_t channels = spec_.shape.channels;
    const auto one = [&](std::int64_t c) {
      return lanes::LrnWindow{rows.width, rows.width, -std::min(before, c), std::min(after, channels - 1 - c)};
    };
    if (rows.width > 1) {
#pragma omp parallel for schedule(static)
      for (std::int64_t row = 0; row < rows.groups * channels; ++row) f(one(row % channels), row * rows.width);
      return;
    }
    // The windows of most channels are complete.
    const std::int64_t first = std::min(before, channels);
    const std::int64_t last = std::max(first, channels - after);
#pragma omp parallel for schedule(static)
    for (std::int64_t g = 0; g < rows.groups; ++g) {
      for (std::int64_t c = 0; c < first; ++c) f(one(c), g * channels + c);
      f({last - first, 1, -before, after}, g * channels + first);
      for (std::int64_t c = last; c < channels; ++c) f(one(c), g * channels + c);
    }
  }

  Rows rows_of(std::int64_t active) const {
    const std::int64_t samples = computed_samples(active, spec_.batch, layout_);
    const std::int64_t plane = spec_.shape.height * spec_.shape.width;
    switch (layout_) {
      case Layout::plain:
        return {samples, plane};
      case Layout::nhwc:
        return {samples * plane, 1};
      case Layout::lanes16:
        break;
    }
    return {(samples + kLanes - 1) / kLanes, plane * kLanes};
  }

  LrnSpec spec_;
  Layout layout_;
  const lanes::LrnKernels& kernels_;
  Workspace workspace_;
  Workspace::Part<float> terms_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const LrnSpec& spec, Layout layout) { return std::make_unique<Lrn>(spec, layout); }

}  // namespace ddp
