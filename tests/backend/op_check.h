// Checks one operator against the double-precision reference, on random values.
//
//   const ConvSpec spec = random_conv();
//   const auto op = backend.ops().make_op(spec, layout, layout, kernels);
//   check_op({backend, *op, spec, layout, layout, /*active*/ 3, 1e-5, "what failed"});
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/reference.h"

namespace ddp {

std::mt19937_64& generator();
std::int64_t random_between(std::int64_t low, std::int64_t high);
// Uniform in [-1, 1].
reference::Values random_values(std::int64_t count);
std::vector<float> random_floats(std::int64_t count);

// A convolution with odd sizes, different paddings on opposite sides, sometimes without bias, sometimes with ReLU and
// pooling.
ConvSpec random_conv(std::int64_t most_stride = 1, std::int64_t most_groups = 1);
std::string describe(const ConvSpec& spec);

struct OpCheck {
  Backend& backend;
  Op& op;
  OpSpec spec;
  Layout x_layout = Layout::plain;
  Layout y_layout = Layout::plain;
  std::int64_t active = 0;  // valid samples of the batch
  double tolerance = 1e-5;
  std::string what;
};

// Runs the operator forward and backward and compares all results, gradients and running statistics, also in place if
// the operator supports it, and also in evaluation. Workspaces, padding samples and tensors that the operator claims
// not to read hold garbage. A difference is a fatal failure.
void check_op(const OpCheck& check);

// The expected results of the active samples.
struct Expected {
  reference::Outputs forward;
  reference::Gradients backward;
  reference::Values y_in_evaluation;  // after the running statistics of `forward`
};

// The same with given inputs and output gradient `dy` of the active samples.
void check_op(const OpCheck& check, const reference::Inputs& in, const reference::Values& dy, const Expected& expected);

}  // namespace ddp
