// The update of one parameter, the same arithmetic on every device: loops over flat buffers call it for each element.
//
//   for (std::int64_t i = 0; i < n; ++i) sgd_element(w[i], g[i], v == nullptr ? nullptr : v + i, coefficients);
#pragma once

#include <cstdint>

#include "backend/host_device.h"

namespace ddp {

struct SgdCoefficients {
  float lr = 0;
  float momentum = 0;
  float weight_decay = 0;  // L2: added to the gradient
  bool nesterov = false;
};

// Stochastic gradient descent as torch.optim.SGD computes it (Sutskever et al., 2013, in PyTorch's form):
//   g += weight_decay * w;  v = momentum * v + g;  w -= lr * (nesterov ? g + momentum * v : v)
// `velocity` is null where there is no momentum.
DDP_HOST_DEVICE inline void sgd_element(float& weight, float gradient, float* velocity, const SgdCoefficients& c) {
  float direction = gradient + c.weight_decay * weight;
  if (velocity != nullptr) {
    *velocity = c.momentum * *velocity + direction;
    direction = c.nesterov ? direction + c.momentum * *velocity : *velocity;
  }
  weight -= c.lr * direction;
}

// An update of flat buffers in device memory. What changes from step to step is read from there when the work runs, so
// that the work can be recorded once.
struct SgdArguments {
  float* weights = nullptr;
  const float* gradient = nullptr;
  float* velocity = nullptr;     // null: no momentum
  std::int64_t count = 0;        // elements of each
  const double* lr = nullptr;    // one value; replaces coefficients.lr
  const double* skip = nullptr;  // one value: nothing is updated where it is not 0
  SgdCoefficients coefficients;
};

}  // namespace ddp
