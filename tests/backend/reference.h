// Every operator in scalar double precision, straight from its definition: the reference for the backends. Activations
// are plain [N][C][H][W] vectors of double.
//
//   reference::Inputs in{.inputs = {x}, .parameters = {weight, bias}};
//   reference::Outputs out = reference::forward(spec, in);
//   reference::Gradients gradients = reference::backward(spec, in, dy);
#pragma once

#include <cstdint>
#include <vector>

#include "backend/op.h"

namespace ddp::reference {

using Values = std::vector<double>;

struct Parameters {
  Values weight{};
  Values bias{};
  Values input_bias{};  // of a batch normalisation
};

struct Inputs {
  std::vector<Values> inputs = std::vector<Values>(1);
  Parameters parameters{};
  Values statistics{};  // running means, then variances
  std::vector<std::uint64_t> keys{};
  bool training = true;

  Values& x() { return inputs.front(); }
  const Values& x() const { return inputs.front(); }
};

struct Outputs {
  Values y;
  Values statistics;  // after the update
};
Outputs forward(const OpSpec& spec, const Inputs& in);

struct Gradients {
  std::vector<Values> inputs = std::vector<Values>(1);
  Parameters parameters{};

  Values& dx() { return inputs.front(); }
  const Values& dx() const { return inputs.front(); }
};
// Returns the gradients of sum(dy * y) in training, from their definitions.
Gradients backward(const OpSpec& spec, const Inputs& in, const Values& dy);

// The largest factor, 1 / sqrt(variance + epsilon), by which a normalisation multiplies.
double largest_factor(const SampleNormSpec& spec, const Values& x);

// Returns which results of a batch normalisation lie within `distance` of a kink of its activation, where rounding
// decides the gradient; empty for other operators, for which inputs can be chosen exactly.
std::vector<bool> near_kinks(const OpSpec& spec, const Inputs& in, double distance);

}  // namespace ddp::reference
