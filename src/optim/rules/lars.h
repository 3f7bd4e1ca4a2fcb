// LARS (You, Gitman and Ginsburg, 2017, algorithm 1): momentum with a learning rate per segment. With g the clipped
// gradient, w the weight, and norms over the segment:
//
//   ratio = trust |w| / (|g| + decay |w|);  v = momentum v + lr ratio (g + decay w);  w -= v
#pragma once

#include "optim/rules/numbers.h"

namespace ddp {

// From the L2 norms of the segment's weights and of its gradient before clipping.
DDP_HOST_DEVICE inline double lars_ratio(const UpdateSettings& settings, double gradient_scale, double decay_scale,
                                         double weights, double gradient) {
  return settings.trust * weights / (gradient_scale * gradient + settings.weight_decay * decay_scale * weights);
}

template <bool kMomentum>
struct Lars {
  static constexpr bool first = kMomentum;
  static constexpr bool second = false;

  // n.lr includes the ratio.
  DDP_HOST_DEVICE static float direction(const ElementNumbers& n, float gradient, float /*weight*/,
                                         const ElementState& at) {
    float direction = gradient;
    direction *= n.lr;
    if constexpr (kMomentum) {
      *at.first = n.momentum * *at.first + direction;
      direction = *at.first;
    }
    return direction;
  }
};

}  // namespace ddp
