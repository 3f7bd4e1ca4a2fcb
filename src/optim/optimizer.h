// Optimizers over flat buffers of a backend: they see no model, only parameters, their gradient and their own state.
//
//   const std::vector<ParameterSegment> segments = {{0, parameter_count}};
//   Optimizer adam(backend, segments, {.rule = UpdateRule::adam, .weight_decay = 0.01});
//   adam.update(parameters, gradient, control, broken);
//
// An update is enqueued (Note [Order of work] in backend/device_queue.h); all pointers are memory of the backend. Each
// parameter is updated independently, in fp32, by the rules of optim/rules/update.h; norms are summed in a fixed order,
// so the bits do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "options/options.h"

namespace ddp {

// A buffer of optimizer state, of one value for each parameter; checkpoints store it under this name.
struct OptimizerState {
  std::string name;  // "momentum", "exp_avg", "exp_avg_sq", "square_avg" as in PyTorch; "ema"
  float* values = nullptr;
};

// What is updated here, if that is not the whole model: `begin` of the `elements` of the flat buffer is where the parameters
// that update() is given begin. The state has the size of the flat buffer, and lies in the same places.
struct UpdatedPart {
  std::int64_t begin = 0;
  std::int64_t elements = 0;
  // Others update what lies between the segments.
  bool shared = false;
};

class Optimizer {
 public:
  // The segments lie in the flat buffer, or in its part, in this order. Between them, weights, gradient and state are zero
  // and stay so. `state`: state_bytes() of zeroed memory for the state, if that is not to be allocated here.
  Optimizer(Backend& backend, std::span<const ParameterSegment> segments, const UpdateSettings& settings,
            UpdatedPart part = {}, Memory state = {});

  // One update; `gradient` is the gradient of the mean loss over the global batch. `control` and `skip` are read when
  // the update executes; it is skipped unless *skip is 0.
  void update(float* parameters, const float* gradient, const StepControl* control, const double* skip);
  // For segments that are divided among the ranks: how their norms are summed. All ranks then update at the same time.
  void set_sums_over_ranks(SumOverShards sums) { sums_over_ranks_ = std::move(sums); }
  // For a part, or segments of which others have the rest: how the norm of the whole gradient is summed. The ranks of all
  // parts then update at the same time.
  void set_sum_over_parts(SumOverParts sum) { sum_over_parts_ = std::move(sum); }
  std::vector<OptimizerState> state();
  // The moving average of the parameters, valid after the first update; null if there is none.
  const float* average() const { return arguments_.average == nullptr ? nullptr : arguments_.average - part_.begin; }
  // Elements of each buffer.
  std::size_t elements() const { return static_cast<std::size_t>(part_.elements); }
  // Bytes of the state.
  std::size_t bytes() const { return state_.bytes(); }

 private:
  Backend& backend_;
  UpdatedPart part_;
  UpdateArguments arguments_;  // but for what update() is given
  Memory state_;
  Memory tables_;
  SumOverShards sums_over_ranks_;
  SumOverParts sum_over_parts_;
  std::unique_ptr<MatrixUpdate> matrices_;
  Memory matrix_scratch_;
};

// The number of state buffers of an optimizer, with one float per parameter each.
std::size_t state_buffers(const UpdateSettings& settings);

// Bytes of the state for this many elements.
std::size_t state_bytes(std::size_t elements, const UpdateSettings& settings);

// Converts the options.
UpdateSettings update_settings(const OptimizerOptions& options);

}  // namespace ddp
