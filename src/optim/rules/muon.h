// Muon (K. Jordan et al.: "Muon: An optimizer for hidden layers in neural networks", 2024): momentum, whose step is made
// nearly orthogonal for each matrix as a whole. With g the clipped gradient of a matrix w of R rows and C columns:
//
//   v = momentum v + g;  u = g + momentum v;  X = u / |u|
//   a few times: A = X X^T;  X = a X + (b A + c A A) X      (X^T in place of X if R > C)
//   w *= sqrt(R) / |w| if `muon_normalizes`;  w -= lr decay w + lr scale(R, C) X
//
// The polynomial moves all singular values of X into about [0.7, 1.2] without computing them. Its momentum is Nesterov's.
// Parameters that are no matrices are updated by sgd.h. The state has the form of torch.optim.SGD's, which is that of
// torch.optim.Muon divided by 1 - momentum: X does not depend on the magnitude of u.
#pragma once

#include <cmath>
#include <cstdint>

#include "optim/rules/numbers.h"

namespace ddp {

// a, b and c above.
inline constexpr float kMuonLinear = 3.4445F;
inline constexpr float kMuonCubic = -4.7750F;
inline constexpr float kMuonQuintic = 2.0315F;
// Smaller norms of u are taken for this.
inline constexpr double kMuonEpsilon = 1e-7;

// scale(R, C) above.
DDP_HOST_DEVICE inline double muon_scale(MuonScale scale, std::int64_t rows, std::int64_t columns) {
  const auto r = static_cast<double>(rows);
  const auto c = static_cast<double>(columns);
  switch (scale) {
    case MuonScale::shape:
      return std::sqrt(r > c ? r / c : 1);
    case MuonScale::rms:
      return 0.2 * std::sqrt(r > c ? r : c);
    case MuonScale::none:
      break;
  }
  return 1;
}

// The numbers of a matrix, whose decay is decoupled always.
DDP_HOST_DEVICE inline ElementNumbers muon_numbers(UpdateSettings settings, const StepNumbers& step, double lr_scale,
                                                   double decay_scale, double scale) {
  settings.decoupled = true;
  return element_numbers(settings, step, lr_scale, decay_scale, scale);
}

// u above from g and the new v.
DDP_HOST_DEVICE inline float muon_nesterov(float gradient, float momentum, float first) {
  return gradient + momentum * first;
}

// u above; updates v.
DDP_HOST_DEVICE inline float muon_direction(const ElementNumbers& n, float momentum, float gradient, float& first) {
  const float g = clipped(n, gradient);
  first = momentum * first + g;
  return muon_nesterov(g, momentum, first);
}

// The new weight; `factor` is that of the normalisation.
DDP_HOST_DEVICE inline float muon_weight(const ElementNumbers& n, float factor, float weight, float direction) {
  const float scaled = factor * weight;
  return scaled - n.shrink * scaled - n.lr * direction;
}

}  // namespace ddp
