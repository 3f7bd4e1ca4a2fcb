// The update of one parameter, with the same arithmetic on every device: each backend loops over flat buffers and calls
// it for every element.
//
//   with_update_form(settings, [&](auto form) {
//     using Form = decltype(form);
//     const StepNumbers step = step_numbers(settings, control, square_sum);
//     const ElementNumbers n = element_numbers(settings, step, 1, 1, 1);
//     for (std::int64_t i = 0; i < count; ++i) update_element<Form>(n, places_at<Form>(buffers, i));
//   });
//
// The rules are in sgd.h, adam.h, rmsprop.h, lars.h and lamb.h; muon.h updates whole matrices. Decoupled weight decay (Loshchilov and Hutter, 2019)
// subtracts lr decay w from the weight and leaves the gradient as it is.
#pragma once

#include <cmath>
#include <cstdint>

#include "optim/rules/adam.h"
#include "optim/rules/lamb.h"
#include "optim/rules/lars.h"
#include "optim/rules/numbers.h"
#include "optim/rules/rmsprop.h"
#include "optim/rules/sgd.h"

namespace ddp {

// The factor of a segment's learning rate, from sums of squares over the segment: of its weights, and of its gradient
// (lars) or of its direction (lamb). 1 if either is 0.
DDP_HOST_DEVICE inline double trust_ratio(const UpdateSettings& settings, double gradient_scale, double decay_scale,
                                          double weight_squares, double other_squares) {
  const double weights = std::sqrt(weight_squares);
  const double other = std::sqrt(other_squares);
  if (!(weights > 0) || !(other > 0)) return 1;
  if (settings.rule == UpdateRule::lamb) return weights / other;
  return lars_ratio(settings, gradient_scale, decay_scale, weights, other);
}

// A rule with all its variants resolved at compile time, so that loops contain no branches.
template <class RuleOf, bool kAverage>
struct UpdateForm {
  using Rule = RuleOf;
  static constexpr bool average = kAverage;
};

template <class Rule, class F>
void with_average(const UpdateSettings& settings, const F& f) {
  if (settings.has_average()) {
    f(UpdateForm<Rule, true>{});
  } else {
    f(UpdateForm<Rule, false>{});
  }
}

// Calls f with the UpdateForm of the settings.
template <class F>
void with_update_form(const UpdateSettings& settings, const F& f) {
  const bool momentum = settings.momentum > 0;
  switch (settings.rule) {
    case UpdateRule::sgd:
      if (momentum && settings.nesterov) return with_average<Sgd<true, true>>(settings, f);
      if (momentum) return with_average<Sgd<true, false>>(settings, f);
      return with_average<Sgd<false, false>>(settings, f);
    case UpdateRule::adam:
    case UpdateRule::adamw:
      return with_average<Adam>(settings, f);
    case UpdateRule::rmsprop:
      if (momentum && settings.keras) return with_average<RmsProp<true, true>>(settings, f);
      if (momentum) return with_average<RmsProp<true, false>>(settings, f);
      if (settings.keras) return with_average<RmsProp<false, true>>(settings, f);
      return with_average<RmsProp<false, false>>(settings, f);
    case UpdateRule::lars:
      if (momentum) return with_average<Lars<true>>(settings, f);
      return with_average<Lars<false>>(settings, f);
    case UpdateRule::lamb:
      return with_average<Lamb>(settings, f);
    case UpdateRule::muon:
      if (settings.nesterov) return with_average<Sgd<true, true>>(settings, f);
      return with_average<Sgd<true, false>>(settings, f);
  }
}

// Pointers to the values of one parameter; null if the form has no such buffer.
struct ElementPlaces {
  float* weight;
  const float* gradient;
  float* first;
  float* second;
  float* average;
};
template <class Form>
DDP_HOST_DEVICE inline ElementPlaces places_at(const UpdateBuffers& buffers, std::int64_t i) {
  return {buffers.weights + i, buffers.gradient + i, Form::Rule::first ? buffers.first + i : nullptr,
          Form::Rule::second ? buffers.second + i : nullptr, Form::average ? buffers.average + i : nullptr};
}

// Moves the average of a weight that was `before` and is now `after`.
DDP_HOST_DEVICE inline void follow(const ElementNumbers& n, float before, float after, float& average) {
  // Read unconditionally, so that loops contain no branch.
  const float old = average;
  const float start = n.average_starts ? before : old;
  average = start + n.average_rest * (after - start);
}

template <class Form>
DDP_HOST_DEVICE inline void update_element(const ElementNumbers& n, const ElementPlaces& at) {
  const float before = *at.weight;
  const float gradient = clipped(n, *at.gradient) + n.l2 * before;
  const float direction = Form::Rule::direction(n, gradient, before, {at.first, at.second});
  const float after = before - n.shrink * before - direction;
  *at.weight = after;
  if constexpr (Form::average) follow(n, before, after, *at.average);
}

}  // namespace ddp
