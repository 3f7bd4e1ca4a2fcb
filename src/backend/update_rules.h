// The update of one parameter, the same arithmetic on every device: loops over flat buffers call it for each element.
//
//   with_update_form(settings, [&](auto form) {
//     const ElementNumbers n = element_numbers(settings, step_numbers(settings, lr, momentum, step, norm), 1, 1, 1);
//     for (std::int64_t i = 0; i < count; ++i) update_element<decltype(form)>(n, elements_at(arguments, i));
//   });
//
// With g the gradient times the clip's factor, or cut off at the clip's value, w the weight, t the number of the update
// from 1:
//
//   sgd      (torch.optim.SGD; Sutskever et al., 2013)   g += decay w;  v = momentum v + g;
//            w -= lr (nesterov ? g + momentum v : v)
//   adam     (torch.optim.Adam; Kingma and Ba, 2015)     g += decay w;  m += (1 - beta1) (g - m);
//            s = beta2 s + (1 - beta2) g^2;  w -= lr / (1 - beta1^t) m / (sqrt(s / (1 - beta2^t)) + epsilon)
//   rmsprop  (torch.optim.RMSprop; Tieleman and Hinton, 2012)   g += decay w;  s = rho s + (1 - rho) g^2;
//            v = momentum v + g / (sqrt(s) + epsilon);  w -= lr v
//            in Keras' form:  v = momentum v + lr g / sqrt(s + epsilon);  w -= v
//   lars     (You, Gitman and Ginsburg, 2017, algorithm 1)   ratio = trust |w| / (|g| + decay |w|);
//            v = momentum v + lr ratio (g + decay w);  w -= v
//   lamb     (You et al., 2020, algorithm 2)   m and s as in adam;
//            r = m / (1 - beta1^t) / (sqrt(s / (1 - beta2^t)) + epsilon) + decay w;  w -= lr |w| / |r| r
//
// Decoupled decay (Loshchilov and Hutter, 2019, as torch.optim.AdamW has it) is w -= lr decay w before the rule, and
// leaves g alone. Norms are those of a segment; the ratio is 1 where one of them is 0.
#pragma once

#include <cmath>
#include <cstdint>

#include "backend/flat_update.h"
#include "backend/host_device.h"

namespace ddp {

// The numbers of a step. `momentum`: in place of settings.own_momentum(). `square_sum`: of the gradient, where its norm
// is clipped.
// The norm is limited as torch.nn.utils.clip_grad_norm_ does it, Pascanu et al., 2013. Where beta1 changes from step to
// step, its correction is of the present one, as in torch.optim.Adam. The moving average's decay warms up as in
// TensorFlow's ExponentialMovingAverage.
DDP_HOST_DEVICE inline StepNumbers step_numbers(const UpdateSettings& settings, double lr, double momentum, double step,
                                                double square_sum) {
  StepNumbers n;
  n.lr = lr;
  n.momentum = momentum;
  if (settings.clip_norm > 0) {
    const double factor = settings.clip_norm / (std::sqrt(square_sum) + 1e-6);
    n.gradient_scale = factor < 1 ? factor : 1;
  }
  if (settings.rule == UpdateRule::adam || settings.rule == UpdateRule::lamb) {
    n.correction1 = 1 - std::pow(momentum, step);
    n.correction2 = 1 - std::pow(settings.beta2, step);
  }
  const double warm = step / (9 + step);  // (1 + done) / (10 + done)
  n.average_keep = settings.average_warmup && warm < settings.average_decay ? warm : settings.average_decay;
  n.average_starts = step <= 1;
  return n;
}

// The factor of a segment's learning rate, from sums of squares over it: of its weights, and of its gradient (lars) or
// of its direction (lamb).
DDP_HOST_DEVICE inline double trust_ratio(const UpdateSettings& settings, double gradient_scale, double decay_scale,
                                          double weight_squares, double other_squares) {
  const double weights = std::sqrt(weight_squares);
  const double other = std::sqrt(other_squares);
  if (!(weights > 0) || !(other > 0)) return 1;
  if (settings.rule == UpdateRule::lamb) return weights / other;
  return settings.trust * weights / (gradient_scale * other + settings.weight_decay * decay_scale * weights);
}

// What the rules read for each element.
struct ElementNumbers {
  float gradient_scale = 1;
  float most = 0;    // that a value of the gradient may be
  float lr = 0;      // with all factors
  float l2 = 0;      // the part of the weight that is added to the gradient
  float shrink = 0;  // the part of the weight that is taken away
  float momentum = 0;
  float rest1 = 0;  // 1 - beta1
  float beta2 = 0;  // rmsprop: rho
  float rest2 = 0;  // 1 - beta2
  float correction1 = 1;
  float root2 = 1;  // of the second correction
  float epsilon = 0;
  float decay = 0;  // lamb
  float average_rest = 0;
  bool average_starts = false;
};

DDP_HOST_DEVICE inline ElementNumbers element_numbers(const UpdateSettings& settings, const StepNumbers& step,
                                                      double lr_scale, double decay_scale, double ratio) {
  ElementNumbers n;
  const double lr = step.lr * lr_scale;
  const double decay = settings.weight_decay * decay_scale;
  const bool lamb = settings.rule == UpdateRule::lamb;
  const double beta2 = settings.rule == UpdateRule::rmsprop ? settings.rho : settings.beta2;
  n.gradient_scale = static_cast<float>(step.gradient_scale);
  n.lr = static_cast<float>(lr * ratio / (settings.rule == UpdateRule::adam ? step.correction1 : 1));
  n.most = settings.clip_value > 0 ? static_cast<float>(settings.clip_value) : INFINITY;
  n.l2 = static_cast<float>(lamb || settings.decoupled ? 0 : decay);
  n.shrink = static_cast<float>(!lamb && settings.decoupled ? lr * decay : 0);
  n.momentum = static_cast<float>(step.momentum);
  n.rest1 = static_cast<float>(1 - step.momentum);
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

// A rule with its choices made, so that loops have none inside.
template <UpdateRule kRule, bool kMomentum, bool kVariant, bool kAverage>
struct UpdateForm {
  static constexpr UpdateRule rule = kRule;
  static constexpr bool momentum = kMomentum;
  static constexpr bool variant = kVariant;  // sgd: Nesterov's; rmsprop: Keras'
  static constexpr bool average = kAverage;
  static constexpr bool first = kMomentum || kRule == UpdateRule::adam || kRule == UpdateRule::lamb;
  static constexpr bool second = kRule != UpdateRule::sgd && kRule != UpdateRule::lars;
};

template <UpdateRule kRule, bool kMomentum, bool kVariant, class F>
void with_average(const UpdateSettings& settings, const F& f) {
  if (settings.has_average()) {
    f(UpdateForm<kRule, kMomentum, kVariant, true>{});
  } else {
    f(UpdateForm<kRule, kMomentum, kVariant, false>{});
  }
}

// Calls f with the form of the settings.
template <class F>
void with_update_form(const UpdateSettings& settings, const F& f) {
  const bool momentum = settings.momentum > 0;
  switch (settings.rule) {
    case UpdateRule::sgd:
      if (momentum && settings.nesterov) return with_average<UpdateRule::sgd, true, true>(settings, f);
      if (momentum) return with_average<UpdateRule::sgd, true, false>(settings, f);
      return with_average<UpdateRule::sgd, false, false>(settings, f);
    case UpdateRule::adam:
      return with_average<UpdateRule::adam, false, false>(settings, f);
    case UpdateRule::rmsprop:
      if (momentum && settings.keras) return with_average<UpdateRule::rmsprop, true, true>(settings, f);
      if (momentum) return with_average<UpdateRule::rmsprop, true, false>(settings, f);
      if (settings.keras) return with_average<UpdateRule::rmsprop, false, true>(settings, f);
      return with_average<UpdateRule::rmsprop, false, false>(settings, f);
    case UpdateRule::lars:
      if (momentum) return with_average<UpdateRule::lars, true, false>(settings, f);
      return with_average<UpdateRule::lars, false, false>(settings, f);
    case UpdateRule::lamb:
      return with_average<UpdateRule::lamb, false, false>(settings, f);
  }
}

// The places of one parameter; null where the form has no such buffer.
struct ElementPlaces {
  float* weight;
  const float* gradient;
  float* first;
  float* second;
  float* average;
};
template <class Form>
DDP_HOST_DEVICE inline ElementPlaces places_at(const UpdateArguments& a, std::int64_t i) {
  return {a.weights + i, a.gradient + i, Form::first ? a.first + i : nullptr, Form::second ? a.second + i : nullptr,
          Form::average ? a.average + i : nullptr};
}

// The gradient as the rules read it.
DDP_HOST_DEVICE inline float clipped(const ElementNumbers& n, float gradient) {
  const float scaled = n.gradient_scale * gradient;
  const float below = scaled < n.most ? scaled : n.most;
  return below > -n.most ? below : -n.most;
}

// Adam's two averages.
DDP_HOST_DEVICE inline void update_moments(const ElementNumbers& n, float gradient, float& mean, float& square) {
  mean += n.rest1 * (gradient - mean);
  square = n.beta2 * square + n.rest2 * gradient * gradient;
}
// Lamb's r.
DDP_HOST_DEVICE inline float lamb_direction(const ElementNumbers& n, float weight, float mean, float square) {
  return mean / n.correction1 / (std::sqrt(square) / n.root2 + n.epsilon) + n.decay * weight;
}

// What is taken away from a weight, and the state of the rule. Lamb's averages are up to date already.
template <class Form>
DDP_HOST_DEVICE inline float update_direction(const ElementNumbers& n, const ElementPlaces& at) {
  const float gradient = clipped(n, *at.gradient) + n.l2 * *at.weight;
  if constexpr (Form::rule == UpdateRule::adam) {
    update_moments(n, gradient, *at.first, *at.second);
    return n.lr * (*at.first / (std::sqrt(*at.second) / n.root2 + n.epsilon));
  } else if constexpr (Form::rule == UpdateRule::lamb) {
    return n.lr * lamb_direction(n, *at.weight, *at.first, *at.second);
  } else {
    float direction = gradient;
    if constexpr (Form::rule == UpdateRule::rmsprop) {
      *at.second = n.beta2 * *at.second + n.rest2 * gradient * gradient;
      direction = Form::variant ? n.lr * gradient / std::sqrt(*at.second + n.epsilon)
                                : gradient / (std::sqrt(*at.second) + n.epsilon);
    }
    // These have the learning rate inside of the momentum, the others outside.
    constexpr bool kInside = Form::rule == UpdateRule::lars || (Form::rule == UpdateRule::rmsprop && Form::variant);
    if constexpr (Form::rule == UpdateRule::lars) direction *= n.lr;
    if constexpr (Form::momentum) {
      *at.first = n.momentum * *at.first + direction;
      const bool nesterov = Form::rule == UpdateRule::sgd && Form::variant;
      direction = nesterov ? direction + n.momentum * *at.first : *at.first;
    }
    return kInside ? direction : n.lr * direction;
  }
}

template <class Form>
DDP_HOST_DEVICE inline void update_element(const ElementNumbers& n, const ElementPlaces& at) {
  const float before = *at.weight;
  const float direction = update_direction<Form>(n, at);
  const float after = before - n.shrink * before - direction;
  *at.weight = after;
  if constexpr (Form::average) {
    // Read in any case, so that loops have no branch.
    const float old = *at.average;
    const float average = n.average_starts ? before : old;
    *at.average = average + n.average_rest * (after - average);
  }
}

}  // namespace ddp
