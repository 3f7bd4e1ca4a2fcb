// Softmax over channels on the CPU (backend/ops/softmax.h), in any layout.
#include "backend/ops/softmax.h"

#include <algorithm>

#include "backend/cpu/device/planes.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/norm/norm.h"
#include "backend/cpu/norm/softmax_kernels.h"

LANES_TABLE(SoftmaxTable, softmax_kernels)

namespace ddp {
namespace {

class Softmax final : public Op {
 public:
  Softmax(const SoftmaxSpec& spec, Layout layout)
      : spec_(spec), layout_(layout), single_(layout == Layout::nhwc || (layout == Layout::plain && plane() == 1)) {
    const lanes::SoftmaxTable& table = lanes::softmax_kernels();
    kernels_ = single_ ? &table.single : &table.beside;
  }

  OpTraits traits() const override { return {.backward_reads_y = true, .in_place = true}; }

  void forward(const ForwardArguments& a) override {
    each_task(a.active, [&](const lanes::SoftmaxTask& task, std::int64_t at) {
      kernels_->forward(task, a.x().fp32() + at, a.y.fp32() + at);
    });
  }
  // dy is zero beyond the active samples, and so is dx.
  void backward(const BackwardArguments& a) override {
    each_task(a.active, [&](const lanes::SoftmaxTask& task, std::int64_t at) {
      kernels_->backward(task, a.y.fp32() + at, a.dy.fp32() + at, a.dx().fp32() + at);
    });
    clear_rest(a.dx().fp32(), a.active, spec_.batch, spec_.shape, layout_);
  }

 private:
  std::int64_t plane() const { return spec_.shape.height * spec_.shape.width; }

  // Calls f(task, index of its first value) for all positions of the computed samples.
  template <class F>
  void each_task(std::int64_t active, F f) const {
    const std::int64_t samples = computed_samples(active, spec_.batch, layout_);
    const std::int64_t channels = spec_.shape.channels;
    if (single_) {
#pragma omp parallel for schedule(static)
      for (std::int64_t p = 0; p < samples * plane(); ++p) f({channels, 1, 1}, p * channels);
      return;
    }
    const bool blocks = layout_ == Layout::lanes16;
    const std::int64_t groups = blocks ? sample_blocks(samples) : samples;
    const std::int64_t width = plane() * (blocks ? kLanes : 1);
    const std::int64_t most = lanes::SoftmaxTable::kMostPositions;
#pragma omp parallel for collapse(2) schedule(static)
    for (std::int64_t g = 0; g < groups; ++g) {
      for (std::int64_t begin = 0; begin < width; begin += most) {
        f({channels, std::min(most, width - begin), width}, g * channels * width + begin);
      }
    }
  }

  SoftmaxSpec spec_;
  Layout layout_;
  bool single_;
  const lanes::SoftmaxKernels* kernels_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const SoftmaxSpec& spec, Layout layout) {
  return std::make_unique<Softmax>(spec, layout);
}

}  // namespace ddp
