// Which optimizer, its hyperparameters, and the buffers and scalars that an update reads.
//
//   const UpdateSettings adamw{.rule = UpdateRule::adamw, .weight_decay = 0.01};
//   adamw.has_second();   // true: the second moment is kept for each parameter
#pragma once

#include "base/types/host_device.h"
#include "base/types/update_rule.h"

namespace ddp {

// The hyperparameters of an optimizer, constant over a run. Each rule's header says which of them it reads.
struct UpdateSettings {
  UpdateRule rule = UpdateRule::sgd;
  double momentum = 0;  // sgd, rmsprop, lars and muon; if it follows a schedule, any positive value
  bool nesterov = false;
  double weight_decay = 0;
  bool decoupled = false;  // decay the weight itself, not the gradient, as adamw always does; not for lars and lamb
  double beta1 = 0.9;      // adam, adamw and lamb
  double beta2 = 0.999;
  double epsilon = 1e-8;        // adam, adamw, lamb and rmsprop
  double rho = 0.99;            // rmsprop
  bool keras = false;           // rmsprop: Keras' form instead of PyTorch's
  double trust = 0.001;         // lars
  double muon_momentum = 0.95;  // muon: of the matrices; other parameters are updated as by sgd
  int muon_steps = 5;           // of the Newton-Schulz iteration
  MuonScale muon_scale = MuonScale::shape;
  bool muon_normalizes = false;  // scales each matrix of R rows to the norm sqrt(R) before its step
  double clip_norm = 0;          // bound on the gradient's L2 norm; 0: unbounded
  double clip_value = 0;         // bound on each component's magnitude; 0: unbounded. Not for lars
  double average_decay = 0;      // of the exponential moving average of the weights; 0: no average
  bool average_warmup = false;

  // adam with either kind of weight decay, and all rules that estimate moments as it does.
  DDP_HOST_DEVICE bool is_adam() const { return rule == UpdateRule::adam || rule == UpdateRule::adamw; }
  DDP_HOST_DEVICE bool has_moments() const { return is_adam() || rule == UpdateRule::lamb; }
  DDP_HOST_DEVICE bool decays_weights() const { return decoupled || rule == UpdateRule::adamw; }
  // State buffers of the rule: the first moment or momentum, and the second moment.
  DDP_HOST_DEVICE bool has_first() const { return has_moments() || rule == UpdateRule::muon || momentum > 0; }
  DDP_HOST_DEVICE bool has_second() const { return has_moments() || rule == UpdateRule::rmsprop; }
  DDP_HOST_DEVICE bool has_average() const { return average_decay > 0; }
  // The coefficient of the first buffer: beta1 or momentum.
  DDP_HOST_DEVICE double own_momentum() const { return has_moments() ? beta1 : momentum; }
  // Whether each segment's learning rate is scaled by a trust ratio.
  DDP_HOST_DEVICE bool layerwise() const { return rule == UpdateRule::lars || rule == UpdateRule::lamb; }
};

// The scalars of an update that follow the schedule; in device memory when the update executes.
struct StepControl {
  double lr = 0;
  double momentum = 0;    // or beta1; replaces UpdateSettings::own_momentum()
  double step = 0;        // the number of the update, from 1
  double full_lr = 0;     // the learning rate that the schedule scales
  double loss_scale = 1;  // of the gradient, which is divided by it (optim/loss_scale.h)
};

// Scalars of one update, computed once for all elements and kept in device memory.
struct StepNumbers {
  StepControl control;
  double gradient_scale = 1;  // 1 / loss scale, and less if the norm is clipped
  double correction1 = 1;     // bias corrections of the moments: 1 - beta1^step, 1 - beta2^step
  double correction2 = 1;
  double average_keep = 0;      // decay of the moving average in this step
  bool average_starts = false;  // first update: the average starts from the initial weights
};

// Flat buffers of one value per parameter, on the device.
struct UpdateBuffers {
  float* weights = nullptr;
  const float* gradient = nullptr;
  float* first = nullptr;    // momentum, or the first moment; null if the rule has none
  float* second = nullptr;   // the second moment; null if the rule has none
  float* average = nullptr;  // moving average of the weights; null: none
};

}  // namespace ddp
