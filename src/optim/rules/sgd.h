// Stochastic gradient descent with momentum (torch.optim.SGD; Sutskever et al., 2013). With g the clipped gradient and
// w the weight:
//
//   g += decay w;  v = momentum v + g;  w -= lr (nesterov ? g + momentum v : v)
#pragma once

#include "optim/rules/numbers.h"

namespace ddp {

template <bool kMomentum, bool kNesterov>
struct Sgd {
  static constexpr bool first = kMomentum;
  static constexpr bool second = false;

  // Returns the value to subtract from the weight; updates the state.
  DDP_HOST_DEVICE static float direction(const ElementNumbers& n, float gradient, float /*weight*/,
                                         const ElementState& at) {
    float direction = gradient;
    if constexpr (kMomentum) {
      *at.first = n.momentum * *at.first + direction;
      direction = kNesterov ? direction + n.momentum * *at.first : *at.first;
    }
    return n.lr * direction;
  }
};

}  // namespace ddp
