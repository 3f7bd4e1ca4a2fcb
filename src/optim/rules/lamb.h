// LAMB (You et al., 2020, algorithm 2): Adam with a learning rate per segment. With the moments m and s as in Adam, w
// the weight, t the number of the update, and norms over the segment:
//
//   r = m / (1 - beta1^t) / (sqrt(s / (1 - beta2^t)) + epsilon) + decay w;  w -= lr |w| / |r| r
#pragma once

#include "optim/rules/adam.h"

namespace ddp {

// r above.
DDP_HOST_DEVICE inline float lamb_direction(const ElementNumbers& n, float weight, float mean, float square) {
  return mean / n.correction1 / (std::sqrt(square) / n.root2 + n.epsilon) + n.decay * weight;
}

struct Lamb {
  static constexpr bool first = true;
  static constexpr bool second = true;

  // The moments have been updated before, for the norm of r; n.lr includes the ratio.
  DDP_HOST_DEVICE static float direction(const ElementNumbers& n, float /*gradient*/, float weight,
                                         const ElementState& at) {
    return n.lr * lamb_direction(n, weight, *at.first, *at.second);
  }
};

}  // namespace ddp
