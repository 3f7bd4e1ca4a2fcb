// A model compiled for one batch size on one backend: all memory planned, nothing allocated in a step.
//
//   Network network(backend, graph, {.batch = 64, .image = {1, 28, 28}, .scale = {...}, .shift = {...}}, plan);
//   network.forward(parameters, {pixels, nullptr, labels, count}, {.gradient_scale = 1.0F / global_batch, ...});
//   network.backward(parameters, gradient, [&](std::int64_t offset) { reducer.ready(offset); });
//
// Everything is enqueued on the backend (Note [Order of work] in backend/backend.h), and all pointers are its memory.
// Parameters and gradients are flat buffers in the order of Graph::parameters(). Backward fills the gradient from its
// end to its beginning and says after each stage from which offset on it is final.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/memory.h"
#include "backend/memory_plan.h"
#include "model/graph.h"
#include "model/layout_plan.h"
#include "model/stages.h"

namespace ddp {

struct NetworkConfig {
  std::int64_t batch = 0;
  Shape image;
  std::vector<float> scale;  // per channel: activation = byte * scale + shift
  std::vector<float> shift;
  float label_smoothing = 0;
  bool plan_only = false;  // for memory() and describe(): nothing is allocated, and nothing can be run
};

// The samples of a batch, count <= Network::batch() of them.
struct Samples {
  const std::uint8_t* pixels = nullptr;  // images [..][C][H][W]
  const std::int32_t* rows = nullptr;    // which of them each sample is; null: the first `count` in order
  const std::int32_t* labels = nullptr;  // [count]
  std::int64_t count = 0;
  // Of mixed samples, the second label and the weight of the first (backend/loss.h); else null.
  const std::int32_t* other_labels = nullptr;  // [count]
  const float* label_weights = nullptr;        // [count]
};

struct LossOutput {
  double* loss_sum = nullptr;  // written: the sum over the samples
  double* correct = nullptr;   // added to: right answers
  float gradient_scale = 0;
};

class Network {
 public:
  Network(Backend& backend, const Graph& graph, const NetworkConfig& config, const LayoutPlan& plan);

  std::int64_t batch() const { return config_.batch; }
  // Elements of the flat parameters and of their gradient.
  std::int64_t parameter_count() const;
  // The activations, their gradients and the operators' workspaces, in bytes.
  const MemoryPlan& memory() const { return memory_; }
  // The stages with their layouts and kernels, one line each, for people.
  std::string describe() const;

  // The loss over a batch. Keeps what backward needs: the gradient is that of the loss sum times `gradient_scale`.
  void forward(const float* parameters, const Samples& samples, const LossOutput& output);

  using Ready = std::function<void(std::int64_t)>;
  // The gradient for the samples of the last forward, written over `gradient`; `ready(offset)` is called when all
  // elements from `offset` on are final.
  void backward(const float* parameters, float* gradient, const Ready& ready);

 private:
  struct Step {
    std::string name;
    OpSpec spec;
    Layout in = Layout::plain;
    Layout out = Layout::plain;
    std::vector<int> parameters;
    std::unique_ptr<Op> op;
    // Places in the arena.
    float* x = nullptr;
    float* y = nullptr;
    float* dx = nullptr;
    float* dy = nullptr;
    std::byte* saved = nullptr;
    std::byte* forward_workspace = nullptr;
    std::byte* backward_workspace = nullptr;
    std::string kernels;
  };

  void build_steps(Backend& backend, const Graph& graph, const LayoutPlan& plan);
  void plan_memory();

  Backend& backend_;
  const std::vector<Parameter> parameters_;
  NetworkConfig config_;
  InputSpec input_;
  LossSpec loss_;
  std::vector<Step> steps_;
  MemoryPlan memory_;
  Memory arena_;
  std::int64_t active_ = 0;
};

}  // namespace ddp
