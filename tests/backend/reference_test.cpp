// The reference itself, against finite differences.
#include "backend/reference.h"

#include <gtest/gtest.h>

#include <vector>

#include "backend/op_check.h"

namespace ddp {
namespace {

using reference::Parameters;
using reference::Values;

// Central differences of sum(dy * forward(x)) in double: error about step^2 plus 1e-16 / step.
TEST(Reference, GradientsAgreeWithFiniteDifferences) {
  const double step = 1e-5;
  const std::vector<OpSpec> specs = {
      ConvSpec{.batch = 2,
               .input = {2, 5, 6},
               .output_channels = 3,
               .kernel_h = 3,
               .kernel_w = 2,
               .stride = 1,
               .pad_top = 1,
               .pad_left = 1,
               .pad_bottom = 0,
               .pad_right = 1},
      ConvSpec{.batch = 2,
               .input = {2, 6, 6},
               .output_channels = 2,
               .kernel_h = 3,
               .kernel_w = 3,
               .relu = true,
               .average_pool = true},
      ConvSpec{.batch = 1, .input = {2, 7, 7}, .output_channels = 2, .kernel_h = 3, .kernel_w = 3, .stride = 2},
      LinearSpec{.batch = 3, .inputs = 5, .outputs = 4, .relu = true},
      PoolSpec{.batch = 1, .input = {2, 5, 5}, .kind = PoolSpec::Kind::maximum, .window = 3, .stride = 2},
      PoolSpec{.batch = 1, .input = {2, 5, 5}, .kind = PoolSpec::Kind::average, .window = 2, .stride = 2},
      ReluSpec{.batch = 2, .shape = {3, 2, 2}}};
  for (const OpSpec& spec : specs) {
    Values x = random_values(batch_of(spec) * input_of(spec).elements());
    const Values dy = random_values(batch_of(spec) * output_of(spec).elements());
    Parameters p{random_values(reference::weight_count(spec)), random_values(reference::bias_count(spec))};
    const reference::Gradients g = reference::backward(spec, x, dy, p);
    const auto objective = [&] {
      const Values y = reference::forward(spec, x, p);
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
      return sum;
    };
    const auto expect_slopes = [&](Values& variable, const Values& gradient, const char* what) {
      for (std::size_t i = 0; i < variable.size(); ++i) {
        const double kept = variable[i];
        variable[i] = kept + step;
        const double up = objective();
        variable[i] = kept - step;
        const double down = objective();
        variable[i] = kept;
        EXPECT_NEAR((up - down) / (2 * step), gradient[i], 1e-6) << kind_of(spec) << " " << what << " at " << i;
      }
    };
    expect_slopes(x, g.dx, "x");
    expect_slopes(p.weight, g.parameters.weight, "weight");
    expect_slopes(p.bias, g.parameters.bias, "bias");
  }
}

}  // namespace
}  // namespace ddp
