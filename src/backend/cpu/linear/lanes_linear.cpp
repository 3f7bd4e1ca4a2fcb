#include <algorithm>

#include "backend/cpu/conv/tiles/conv_kernels.h"
#include "backend/cpu/device/planes.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/linear/linear.h"
#include "backend/cpu/linear/linear_kernels.h"
#include "backend/workspace.h"

LANES_TABLE(LinearKernels, linear_kernels)

namespace ddp {
namespace {

int tiles(std::int64_t width) { return static_cast<int>((width + lanes::kLinearTile - 1) / lanes::kLinearTile); }

class LanesLinear final : public Op {
 public:
  explicit LanesLinear(const LinearSpec& spec) : spec_(spec), kernels_(lanes::linear_kernels()) {
    Workspace layout;
    dpre_ = layout.add<float>(spec.relu ? stored_elements(spec.batch, {spec.outputs, 1, 1}, Layout::lanes16) : 0);
    workspace_bytes_ = layout.bytes();
  }

  OpTraits traits() const override {
    return {.workspace_bytes = workspace_bytes_, .backward_reads_inputs = {0}, .backward_reads_y = spec_.relu};
  }

  void forward(const ForwardArguments& a) override {
    const lanes::LinearShape shape = shape_for(a.active);
#pragma omp parallel for schedule(static)
    for (int tile = 0; tile < tiles(spec_.outputs); ++tile) {
      kernels_.forward(shape, a.x().fp32(), a.parameters[0], a.parameters[1], spec_.relu, a.y.fp32(), tile);
    }
  }

  void backward(const BackwardArguments& a) override {
    const lanes::LinearShape shape = shape_for(a.active);
    const float* dpre = a.dy.fp32();
    if (spec_.relu) {
      float* masked = dpre_.in(a.workspace);
      const std::int64_t count = std::int64_t{shape.blocks} * kLanes * spec_.outputs;
      const float* const y = a.y.fp32();
      const float* const dy = a.dy.fp32();
#pragma omp parallel for simd schedule(static)
      for (std::int64_t i = 0; i < count; ++i) masked[i] = y[i] <= 0.0F ? 0.0F : dy[i];
      dpre = masked;
    }
#pragma omp parallel for schedule(static)
    for (int tile = 0; tile < tiles(spec_.outputs); ++tile) {
      kernels_.weights(shape, a.x().fp32(), dpre, a.parameter_gradients[0], tile);
    }
    if (spec_.bias) bias_gradient(shape, dpre, a.parameter_gradients[1]);
    if (!spec_.input_gradient) return;
#pragma omp parallel for schedule(static)
    for (int tile = 0; tile < tiles(spec_.inputs); ++tile) {
      kernels_.data(shape, dpre, a.parameters[0], a.dx().fp32(), tile);
    }
    clear_rest(a.dx().fp32(), a.active, spec_.batch, {spec_.inputs, 1, 1}, Layout::lanes16);
  }

 private:
  lanes::LinearShape shape_for(std::int64_t active) const {
    return {static_cast<int>(sample_blocks(active)), static_cast<int>(spec_.inputs), static_cast<int>(spec_.outputs)};
  }

  void bias_gradient(const lanes::LinearShape& shape, const float* dpre, float* db) const {
    for (int o = 0; o < shape.outputs; ++o) {
      float total = 0;
      for (int block = 0; block < shape.blocks; ++block) {
        total += lanes::gradient_kernels().sum(dpre + kLanes * (std::int64_t{block} * shape.outputs + o), 1);
      }
      db[o] = total;
    }
  }

  LinearSpec spec_;
  const lanes::LinearKernels& kernels_;
  Workspace::Part<float> dpre_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Op> make_lanes_linear(const LinearSpec& spec) { return std::make_unique<LanesLinear>(spec); }

}  // namespace ddp
