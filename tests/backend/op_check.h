// One operator against the reference in double precision, on fresh random values.
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

// A convolution with odd sizes, paddings that differ between opposite sides, sometimes without bias, sometimes with
// ReLU and pooling.
ConvSpec random_conv(std::int64_t most_stride = 1, std::int64_t most_groups = 1);
std::string describe(const ConvSpec& spec);

struct OpCheck {
  Backend& backend;
  Op& op;
  OpSpec spec;
  Layout x_layout = Layout::plain;
  Layout y_layout = Layout::plain;
  std::int64_t active = 0;  // samples of the batch that matter
  double tolerance = 1e-5;
  std::string what;
};

// Runs the operator forward and backward and compares all that it computes: results, gradients and running statistics,
// in place too where the operator says that it can, and an evaluation. Workspaces, samples that do not matter and what
// the operator says it does not read hold garbage. A difference is a fatal failure.
void check_op(const OpCheck& check);

// What the active samples should give.
struct Expected {
  reference::Outputs forward;
  reference::Gradients backward;
  reference::Values y_in_evaluation;  // after the running statistics of `forward`
};

// The same on given values: of the active samples, and the gradient `dy` of what they give.
void check_op(const OpCheck& check, const reference::Inputs& in, const reference::Values& dy, const Expected& expected);

}  // namespace ddp
