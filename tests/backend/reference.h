// Every operator in scalar double precision, written from its definition: what the backends are compared with.
// Activations are plain [N][C][H][W] vectors of double.
#pragma once

#include <vector>

#include "backend/op.h"

namespace ddp::reference {

using Values = std::vector<double>;

struct Parameters {
  Values weight;
  Values bias;
};

// What an operator computes on a batch.
Values forward(const OpSpec& spec, const Values& x, const Parameters& parameters);

struct Gradients {
  Values dx;
  Parameters parameters;
};
// The gradients of sum(dy * forward(x)), from their definitions.
Gradients backward(const OpSpec& spec, const Values& x, const Values& dy, const Parameters& parameters);

// Elements of the weight and the bias; 0 for operators without.
std::int64_t weight_count(const OpSpec& spec);
std::int64_t bias_count(const OpSpec& spec);

}  // namespace ddp::reference
