// Adam (torch.optim.Adam; Kingma and Ba, 2015). With g the clipped gradient, w the weight and t the number of the
// update:
//
//   g += decay w;  m += (1 - beta1) (g - m);  s = beta2 s + (1 - beta2) g^2
//   w -= lr / (1 - beta1^t) m / (sqrt(s / (1 - beta2^t)) + epsilon)
//
// With decoupled decay this is torch.optim.AdamW (Loshchilov and Hutter, 2019).
#pragma once

#include "optim/rules/numbers.h"

namespace ddp {

// The first and second moment.
DDP_HOST_DEVICE inline void update_moments(const ElementNumbers& n, float gradient, float& mean, float& square) {
  mean += n.rest1 * (gradient - mean);
  square = n.beta2 * square + n.rest2 * gradient * gradient;
}

struct Adam {
  static constexpr bool first = true;
  static constexpr bool second = true;

  DDP_HOST_DEVICE static float direction(const ElementNumbers& n, float gradient, float /*weight*/,
                                         const ElementState& at) {
    update_moments(n, gradient, *at.first, *at.second);
    return n.lr * (*at.first / (std::sqrt(*at.second) / n.root2 + n.epsilon));
  }
};

}  // namespace ddp
