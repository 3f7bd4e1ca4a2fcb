// Scalars of an update that are the same for all elements, or for all elements of a segment.
//
//   const StepNumbers step = step_numbers(settings, {.lr = 0.1, .momentum = 0.9, .step = 7}, square_sum);
//   const ElementNumbers n = element_numbers(settings, step, /*lr_scale=*/1, /*decay_scale=*/1, /*ratio=*/1);
//   const float g = clipped(n, gradient[i]);
#pragma once

#include <cmath>

#include "optim/rules/settings.h"

namespace ddp {

// `square_sum` is the gradient's squared L2 norm, read only if it is clipped (torch.nn.utils.clip_grad_norm_; Pascanu
// et al., 2013). If beta1 follows a schedule, its bias correction uses
// the current value, as torch.optim.Adam does. The decay of the moving average warms up as in TensorFlow's
// ExponentialMovingAverage.
DDP_HOST_DEVICE inline StepNumbers step_numbers(const UpdateSettings& settings, const StepControl& control,
                                                double square_sum) {
  StepNumbers n;
  n.control = control;
  n.gradient_scale = 1 / control.loss_scale;
  if (settings.clip_norm > 0) {
    const double factor = settings.clip_norm / (n.gradient_scale * std::sqrt(square_sum) + 1e-6);
    n.gradient_scale *= factor < 1 ? factor : 1;
  }
  if (settings.has_moments()) {
    n.correction1 = 1 - std::pow(control.momentum, control.step);
    n.correction2 = 1 - std::pow(settings.beta2, control.step);
  }
  const double warm = control.step / (9 + control.step);  // (1 + done) / (10 + done)
  n.average_keep = settings.average_warmup && warm < settings.average_decay ? warm : settings.average_decay;
  n.average_starts = control.step <= 1;
  return n;
}

// Scalars that the rules read for each element, in fp32.
struct ElementNumbers {
  float gradient_scale = 1;
  float clip_value = 0;  // bound on each component's magnitude; infinite if unbounded
  float lr = 0;          // including all factors
  float l2 = 0;          // weight decay added to the gradient
  float shrink = 0;      // decoupled weight decay, subtracted from the weight
  float momentum = 0;
  float rest1 = 0;  // 1 - beta1
  float beta2 = 0;  // rmsprop: rho
  float rest2 = 0;  // 1 - beta2
  float correction1 = 1;
  float root2 = 1;  // square root of the second bias correction
  float epsilon = 0;
  float decay = 0;  // lamb
  float average_rest = 0;
  bool average_starts = false;
};

DDP_HOST_DEVICE inline ElementNumbers element_numbers(const UpdateSettings& settings, const StepNumbers& step,
                                                      double lr_scale, double decay_scale, double ratio) {
  ElementNumbers n;
  const double lr = step.control.lr * lr_scale;
  const double decay = settings.weight_decay * decay_scale;
  const bool lamb = settings.rule == UpdateRule::lamb;
  const double beta2 = settings.rule == UpdateRule::rmsprop ? settings.rho : settings.beta2;
  n.gradient_scale = static_cast<float>(step.gradient_scale);
  n.lr = static_cast<float>(settings.is_adam() ? lr * ratio / step.correction1 : lr * ratio);
  n.clip_value = settings.clip_value > 0 ? static_cast<float>(settings.clip_value) : INFINITY;
  n.l2 = static_cast<float>(lamb || settings.decays_weights() ? 0 : decay);
  n.shrink = static_cast<float>(!lamb && settings.decays_weights() ? lr * decay : 0);
  n.momentum = static_cast<float>(step.control.momentum);
  n.rest1 = static_cast<float>(1 - step.control.momentum);
  n.beta2 = static_cast<float>(beta2);
  n.rest2 = static_cast<float>(1 - beta2);
  n.correction1 = static_cast<float>(step.correction1);
  n.root2 = static_cast<float>(std::sqrt(step.correction2));
  n.epsilon = static_cast<float>(settings.epsilon);
  n.decay = static_cast<float>(lamb ? decay : 0);
  n.average_rest = static_cast<float>(1 - step.average_keep);
  n.average_starts = step.average_starts;
  return n;
}

// For parameters that are not trained any more: the weight keeps its value, which its moving average approaches. The
// momentum is dropped, since it is a part of the step where it contains the learning rate (Keras' rmsprop).
DDP_HOST_DEVICE inline ElementNumbers frozen(ElementNumbers n) {
  n.lr = n.shrink = n.momentum = 0;
  return n;
}

// The gradient after clipping by norm and by value.
DDP_HOST_DEVICE inline float clipped(const ElementNumbers& n, float gradient) {
  const float scaled = n.gradient_scale * gradient;
  const float below = scaled < n.clip_value ? scaled : n.clip_value;
  return below > -n.clip_value ? below : -n.clip_value;
}

// The state of one parameter; null if the rule has no such buffer.
struct ElementState {
  float* first;
  float* second;
};

}  // namespace ddp
