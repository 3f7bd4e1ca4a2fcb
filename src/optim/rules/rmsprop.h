// RMSprop (torch.optim.RMSprop; Tieleman and Hinton, 2012). With g the clipped gradient and w the weight:
//
//   g += decay w;  s = rho s + (1 - rho) g^2;  v = momentum v + g / (sqrt(s) + epsilon);  w -= lr v
//
// Keras' form:  v = momentum v + lr g / sqrt(s + epsilon);  w -= v
#pragma once

#include "optim/rules/numbers.h"

namespace ddp {

template <bool kMomentum, bool kKeras>
struct RmsProp {
  static constexpr bool first = kMomentum;
  static constexpr bool second = true;

  DDP_HOST_DEVICE static float direction(const ElementNumbers& n, float gradient, float /*weight*/,
                                         const ElementState& at) {
    *at.second = n.beta2 * *at.second + n.rest2 * gradient * gradient;
    float direction =
        kKeras ? n.lr * gradient / std::sqrt(*at.second + n.epsilon) : gradient / (std::sqrt(*at.second) + n.epsilon);
    if constexpr (kMomentum) {
      *at.first = n.momentum * *at.first + direction;
      direction = *at.first;
    }
    return kKeras ? direction : n.lr * direction;
  }
};

}  // namespace ddp
