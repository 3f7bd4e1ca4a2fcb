// Optimizers over flat buffers of a backend: they see no model, only parameters, their gradient and their own state.
//
//   Sgd sgd(backend, parameter_count, {.momentum = 0.9, .nesterov = true, .weight_decay = 5e-4});
//   sgd.update(parameters, gradient, {.lr = lr, .skip = broken});
//
// An update is enqueued (Note [Order of work] in backend/backend.h); all pointers are memory of the backend.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace ddp {

// A buffer of optimizer state, of one value for each parameter; checkpoints store it under this name.
struct OptimizerState {
  std::string name;  // e.g. "momentum"
  float* values = nullptr;
};

// What an update reads when it is carried out; one value each.
struct UpdateControl {
  const double* lr = nullptr;
  const double* skip = nullptr;  // nothing changes where it is not 0
};

class Optimizer {
 public:
  Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  // One step: `gradient` is that of the mean loss over the global batch.
  virtual void update(float* parameters, const float* gradient, const UpdateControl& control) = 0;
  virtual std::vector<OptimizerState> state() = 0;
  // Bytes of that state.
  virtual std::size_t bytes() const = 0;
};

struct SgdConfig {
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;  // L2: added to the gradient
};

// Stochastic gradient descent, sgd_element() of backend/flat_update.h. Each parameter is updated by itself, in fp32:
// the same bits for any number of threads.
class Sgd final : public Optimizer {
 public:
  Sgd(Backend& backend, std::int64_t parameters, const SgdConfig& config);

  void update(float* parameters, const float* gradient, const UpdateControl& control) override;
  std::vector<OptimizerState> state() override;
  std::size_t bytes() const override { return momentum_.bytes(); }

 private:
  Backend& backend_;
  std::int64_t count_;
  SgdConfig config_;
  Memory momentum_;
};

}  // namespace ddp
