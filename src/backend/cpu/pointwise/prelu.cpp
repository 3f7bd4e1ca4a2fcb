// PReLU on the CPU (backend/ops/prelu.h), in any layout.
#include <algorithm>

#include "backend/cpu/device/planes.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/pointwise/pointwise.h"
#include "backend/cpu/pointwise/prelu_kernels.h"
#include "backend/workspace.h"

LANES_TABLE(PreluKernels, prelu_kernels)

namespace ddp {
namespace {

class Prelu final : public Op {
 public:
  Prelu(const PreluSpec& spec, Layout layout)
      : spec_(spec), layout_(layout), kernels_(lanes::prelu_kernels()), shape_(spec.shape) {
    // One weight: the order of the values does not matter, and all belong to one channel.
    if (spec.shared) shape_ = {1, spec.shape.channels * spec.shape.height, spec.shape.width};
    plane_ = shape_.height * shape_.width;
    by_column_ = !spec.shared && (layout == Layout::nhwc || (layout == Layout::plain && plane_ == 1));
    sums_ = workspace_.add<double>(items(spec.batch) * shape_.channels);
  }

  OpTraits traits() const override { return {.workspace_bytes = workspace_.bytes(), .backward_reads_inputs = {0}}; }

  void forward(const ForwardArguments& a) override {
    each_item(computed_samples(a.active, spec_.batch, layout_), [&](std::int64_t item) {
      const float* x = a.x().fp32() + item * item_size();
      float* y = a.y.fp32() + item * item_size();
      if (by_column_) return kernels_.forward(plane_, shape_.channels, x, a.parameters[0], y);
      for (std::int64_t c = 0; c < shape_.channels; ++c) {
        kernels_.forward_one(row_size(), x + c * row_size(), a.parameters[0][c], y + c * row_size());
      }
    });
  }

  void backward(const BackwardArguments& a) override {
    double* sums = sums_.in(a.workspace);
    const std::int64_t computed = computed_samples(a.active, spec_.batch, layout_);
    std::fill_n(sums, items(computed) * shape_.channels, 0.0);
    each_item(computed, [&](std::int64_t item) {
      const std::int64_t at = item * item_size();
      const float* x = a.x().fp32() + at;
      const float* dy = a.dy.fp32() + at;
      float* dx = a.dx().fp32() + at;
      double* own = sums + item * shape_.channels;
      if (by_column_) return kernels_.backward(plane_, shape_.channels, x, a.parameters[0], dy, dx, own);
      for (std::int64_t c = 0; c < shape_.channels; ++c) {
        const std::int64_t row = c * row_size();
        own[c] = kernels_.backward_one(row_size(), x + row, a.parameters[0][c], dy + row, dx + row);
      }
    });
    clear_rest(a.dx().fp32(), a.active, spec_.batch, spec_.shape, layout_);
    for (std::int64_t c = 0; c < shape_.channels; ++c) {
      double sum = 0;
      for (std::int64_t item = 0; item < items(computed); ++item) sum += sums[item * shape_.channels + c];
      a.parameter_gradients[0][c] = static_cast<float>(sum);
    }
  }

 private:
  // Samples, or blocks of 16.
  std::int64_t items(std::int64_t samples) const {
    return layout_ == Layout::lanes16 ? (samples + kLanes - 1) / kLanes : samples;
  }
  std::int64_t row_size() const { return layout_ == Layout::lanes16 ? plane_ * kLanes : plane_; }
  std::int64_t item_size() const { return shape_.channels * row_size(); }

  template <class F>
  void each_item(std::int64_t samples, F f) const {
    const std::int64_t count = items(samples);
#pragma omp parallel for schedule(static)
    for (std::int64_t item = 0; item < count; ++item) f(item);
  }

  PreluSpec spec_;
  Layout layout_;
  const lanes::PreluKernels& kernels_;
  Shape shape_;
  std::int64_t plane_ = 0;
  bool by_column_ = false;
  Workspace workspace_;
  Workspace::Part<double> sums_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const PreluSpec& spec, Layout layout) { return std::make_unique<Prelu>(spec, layout); }

}  // namespace ddp
