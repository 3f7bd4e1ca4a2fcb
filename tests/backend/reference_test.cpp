// Checks the reference itself against finite differences.
#include "backend/reference.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "backend/op_check.h"

namespace ddp {
namespace {

using reference::Inputs;
using reference::Values;

// GCC 12 takes a minute for a braced list of as many variants.
template <class... Specs>
std::vector<OpSpec> specs_of(const Specs&... specs) {
  std::vector<OpSpec> all;
  (all.emplace_back(specs), ...);
  return all;
}

const std::vector<OpSpec>& small_specs() {
  static const std::vector<OpSpec> specs = specs_of(
      ConvSpec{.batch = 2,
               .input = {2, 5, 6},
               .output_channels = 3,
               .window = {.height = 3, .width = 2, .padding = {1, 1, 0, 1}}},
      ConvSpec{.batch = 2,
               .input = {2, 6, 6},
               .output_channels = 2,
               .window = square(3),
               .relu = true,
               .average_pool = true},
      ConvSpec{.batch = 1, .input = {2, 7, 7}, .output_channels = 2, .window = square(3, 2)},
      ConvSpec{.batch = 1,
               .input = {4, 5, 5},
               .output_channels = 6,
               .window = {.height = 3, .width = 3, .stride = 2, .padding = {1, 1, 0, 0}},
               .groups = 2,
               .bias = false},
      ConvSpec{.batch = 1,
               .input = {2, 7, 6},
               .output_channels = 2,
               .window = {.height = 3, .width = 2, .stride = {2, 1}, .padding = {1, 0, 2, 1}, .dilation = {2, 3}}},
      ConvTransposeSpec{.batch = 2,
                        .input = {4, 2, 3},
                        .output_channels = 2,
                        .window = {.height = 3, .width = 2, .stride = {2, 3}, .padding = {1, 0, 0, 1}},
                        .output_padding = {1, 2},
                        .groups = 2},
      PadSpec{.batch = 2, .input = {2, 3, 4}, .padding = {2, 1, 1, 3}},
      PadSpec{.batch = 2, .input = {2, 1, 2}, .padding = {2, 1, 1, 3}, .mode = PadMode::replicate},
      PoolSpec{.batch = 1, .input = {2, 5, 3}, .adaptive_height = 3, .adaptive_width = 4},
      PoolSpec{.batch = 1,
               .input = {2, 6, 7},
               .kind = PoolSpec::Kind::maximum,
               .window = {.height = 2, .width = 3, .stride = {1, 2}, .padding = {1, 1, 0, 2}, .dilation = {3, 2}}},
      LinearSpec{.batch = 3, .inputs = 5, .outputs = 4, .relu = true},
      LinearSpec{.batch = 3, .inputs = 5, .outputs = 4, .bias = false},
      PoolSpec{.batch = 1, .input = {2, 5, 5}, .kind = PoolSpec::Kind::maximum, .window = square(3, 2)},
      PoolSpec{.batch = 1,
               .input = {2, 6, 5},
               .kind = PoolSpec::Kind::maximum,
               .window = {.height = 3, .width = 2, .stride = 2, .padding = {1, 1, 1, 0}}},
      PoolSpec{.batch = 1, .input = {2, 5, 5}},
      PoolSpec{.batch = 1,
               .input = {2, 5, 6},
               .window = {.height = 3, .width = 2, .padding = {1, 1, 2, 0}},
               .count_padding = false},
      BatchNormSpec{.batch = 3, .shape = {2, 2, 3}},
      BatchNormSpec{.batch = 3, .shape = {2, 2, 3}, .epsilon = 0.1F, .activation = Activation::relu, .add = true},
      BatchNormSpec{.batch = 1, .shape = {2, 1, 1}},
      BatchNormSpec{.batch = 3, .shape = {2, 2, 3}, .activation = Activation::relu, .add = true, .frozen = true},
      PreluSpec{.batch = 2, .shape = {3, 2, 2}}, PreluSpec{.batch = 2, .shape = {3, 2, 2}, .shared = true},
      SampleNormSpec{.batch = 2, .shape = {3, 2, 2}},
      SampleNormSpec{.batch = 2, .shape = {4, 2, 3}, .over = NormOver::groups, .groups = 2, .epsilon = 0.1F},
      SampleNormSpec{.batch = 2, .shape = {2, 2, 3}, .over = NormOver::groups, .groups = 2},
      AddSpec{.batch = 2, .shape = {2, 2, 2}}, AddSpec{.batch = 2, .shape = {2, 2, 2}, .activation = Activation::relu6},
      LrnSpec{.batch = 2, .shape = {5, 2, 1}, .size = 3, .alpha = 0.5F, .k = 2},
      LrnSpec{.batch = 1, .shape = {5, 1, 2}, .size = 4, .alpha = 2, .beta = 0.5F},
      DropoutSpec{.batch = 3, .shape = {3, 2, 2}, .rate = 0.3F, .stream = 2},
      ReorderSpec{.batch = 2, .shape = {2, 1, 2}}, SoftmaxSpec{.batch = 2, .shape = {4, 2, 1}},
      ChannelsLastSpec{.batch = 2, .input = {2, 3, 2}});
  return specs;
}

// Keeps inputs away from 0 and 6, and their sums from 0; gaps between values are larger than the step.
Inputs inputs_for(const OpSpec& spec) {
  const std::int64_t count = batch_of(spec) * input_of(spec).elements();
  Inputs in{.inputs = {random_values(count)},
            .parameters = {random_values(parameter_elements(spec, 0)), random_values(parameter_elements(spec, 1))},
            .statistics = random_values(statistic_elements(spec))};
  // The second half are variances.
  for (std::size_t i = in.statistics.size() / 2; i < in.statistics.size(); ++i) {
    in.statistics[i] = 0.1 + std::abs(in.statistics[i]);
  }
  for (std::size_t which = 1; std::cmp_less(which, inputs_of(spec)); ++which) {
    in.inputs.push_back(random_values(batch_of(spec) * input_of(spec, which).elements()));
  }
  for (std::int64_t n = 0; n < batch_of(spec); ++n) in.keys.push_back(generator()());
  return in;
}

// Returns false if a kink lies within a central difference, where the one-sided slopes differ.
bool smooth(double down, double here, double up, double step) {
  return std::abs((up - here) - (here - down)) / step < 1e-3;
}

// Central differences of sum(dy * forward(x)) in double; the error is about step^2 + 1e-16 / step.
TEST(Reference, GradientsAgreeWithFiniteDifferences) {
  const double step = 1e-5;
  std::vector<OpSpec> specs = small_specs();
  for (const auto activation :
       {Activation::none, Activation::relu, Activation::relu6, Activation::sigmoid, Activation::tanh}) {
    specs.emplace_back(ActivationSpec{.batch = 2, .shape = {3, 2, 2}, .activation = activation});
  }
  for (const OpSpec& spec : specs) {
    Inputs in = inputs_for(spec);
    const Values dy = random_values(batch_of(spec) * output_of(spec).elements());
    const reference::Gradients g = reference::backward(spec, in, dy);
    const auto objective = [&] {
      const Values y = reference::forward(spec, in).y;
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
      return sum;
    };
    std::size_t kinks = 0;
    const auto expect_slopes = [&](Values& variable, const Values& gradient, const std::string& what) {
      ASSERT_EQ(variable.size(), gradient.size()) << kind_of(spec) << " " << what;
      for (std::size_t i = 0; i < variable.size(); ++i) {
        const double kept = variable[i];
        const double here = objective();
        variable[i] = kept + step;
        const double up = objective();
        variable[i] = kept - step;
        const double down = objective();
        variable[i] = kept;
        if (!smooth(down, here, up, step)) {
          ++kinks;
          continue;
        }
        EXPECT_NEAR((up - down) / (2 * step), gradient[i], 1e-6) << kind_of(spec) << " " << what << " at " << i;
      }
    };
    for (std::size_t which = 0; which < in.inputs.size(); ++which) {
      expect_slopes(in.inputs[which], g.inputs.at(which), fmt::format("input {}", which));
    }
    expect_slopes(in.parameters.weight, g.parameters.weight, "weight");
    expect_slopes(in.parameters.bias, g.parameters.bias, "bias");
    EXPECT_LE(kinks, 3U) << kind_of(spec);
  }
}

// What finite differences cannot check: the gradient at a kink, running statistics, evaluation.
TEST(Reference, TheGradientAtAKinkIsThatOfPyTorch) {
  const Inputs in{.inputs = {{-1, 0, 3, 6, 7}}};
  const auto gradient = [&](Activation activation) {
    return reference::backward(ActivationSpec{1, {5, 1, 1}, activation}, in, Values(5, 1.0)).dx();
  };
  EXPECT_EQ(gradient(Activation::relu), (Values{0, 0, 1, 1, 1}));
  EXPECT_EQ(gradient(Activation::relu6), (Values{0, 0, 1, 0, 0}));
}

TEST(Reference, RunningStatisticsMoveTowardsTheBatchs) {
  const BatchNormSpec spec{.batch = 4, .shape = {1, 1, 1}, .epsilon = 0, .momentum = 0.5F};
  Inputs in{.inputs = {{1, 3, 5, 7}}, .parameters = {{2}, {1}}, .statistics = {2, 4}};
  // Mean 4, variance 5 (20/3 with divisor n - 1).
  const reference::Outputs out = reference::forward(spec, in);
  EXPECT_NEAR(out.y[3], 2 * 3 / std::sqrt(5.0) + 1, 1e-12);
  EXPECT_NEAR(out.statistics[0], 3, 1e-12);
  EXPECT_NEAR(out.statistics[1], (4 + 20.0 / 3) / 2, 1e-12);
  in.training = false;
  const reference::Outputs evaluated = reference::forward(spec, in);
  EXPECT_NEAR(evaluated.y[3], 2 * (7 - 2) / 2.0 + 1, 1e-12);
  EXPECT_EQ(evaluated.statistics, in.statistics);
}

TEST(Reference, AnAverageCountsPaddingOrNot) {
  PoolSpec spec{.batch = 1, .input = {1, 2, 2}, .window = square(2, 2, 1)};
  EXPECT_EQ(reference::forward(spec, {.inputs = {{4, 8, 12, 16}}}).y, (Values{1, 2, 3, 4}));
  spec.count_padding = false;
  EXPECT_EQ(reference::forward(spec, {.inputs = {{4, 8, 12, 16}}}).y, (Values{4, 8, 12, 16}));
}

// A rate of 0 keeps all elements; a rate of 1/3 drops a third, which differ between streams and keys.
TEST(Reference, DropoutTakesItsShare) {
  const std::int64_t elements = 30'000;
  const auto taken = [&](float rate, std::uint32_t stream, std::uint64_t key) {
    const DropoutSpec spec{.batch = 1, .shape = {elements, 1, 1}, .rate = rate, .stream = stream};
    return reference::forward(spec, {.inputs = {Values(static_cast<std::size_t>(elements), 1.0)}, .keys = {key}}).y;
  };
  const auto zeros = [](const Values& y) { return std::count(y.begin(), y.end(), 0.0); };
  EXPECT_EQ(zeros(taken(0, 0, 1)), 0);
  // 490 is six standard deviations.
  const Values third = taken(1.0F / 3, 0, 1);
  EXPECT_NEAR(static_cast<double>(zeros(third)), 10'000, 490);
  EXPECT_NEAR(*std::max_element(third.begin(), third.end()), 1.5, 1e-6);
  EXPECT_NE(third, taken(1.0F / 3, 1, 1));
  EXPECT_NE(third, taken(1.0F / 3, 0, 2));
}

}  // namespace
}  // namespace ddp
