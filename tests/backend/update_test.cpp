// Updates of flat buffers against the double-precision rules, parameter by parameter.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend_case.h"
#include "backend/device_update.h"
#include "backend/device_values.h"
#include "backend/op_check.h"
#include "backend/update_reference.h"

namespace ddp {
namespace {

std::vector<UpdateSettings> all_forms() {
  using R = UpdateRule;
  return {
      {},
      {.weight_decay = 0.01},
      {.momentum = 0.9},
      {.momentum = 0.9, .nesterov = true, .weight_decay = 0.01},
      {.momentum = 0.9, .weight_decay = 0.01, .clip_value = 0.5},
      {.momentum = 0.9, .weight_decay = 0.01, .decoupled = true, .clip_norm = 10, .average_decay = 0.9},
      {.rule = R::adam},
      {.rule = R::adam, .weight_decay = 0.05, .clip_norm = 40},
      {.rule = R::adam, .clip_value = 0.6},
      {.rule = R::adam, .weight_decay = 0.05, .decoupled = true, .beta1 = 0.8, .beta2 = 0.95, .average_decay = 0.99},
      {.rule = R::adamw, .weight_decay = 0.05, .clip_norm = 40, .average_decay = 0.99},
      {.rule = R::rmsprop, .weight_decay = 0.05},
      {.rule = R::rmsprop, .momentum = 0.5, .epsilon = 1e-3, .rho = 0.9},
      {.rule = R::rmsprop, .weight_decay = 0.05, .epsilon = 1e-3, .rho = 0.9, .keras = true},
      {.rule = R::rmsprop, .momentum = 0.5, .epsilon = 1e-3, .rho = 0.9, .keras = true, .average_decay = 0.5},
      {.rule = R::lars, .trust = 0.1},
      {.rule = R::lars, .momentum = 0.9, .weight_decay = 0.01, .trust = 0.1, .clip_norm = 1, .average_decay = 0.9},
      {.rule = R::lamb},
      {.rule = R::lamb, .clip_value = 0.4},
      {.rule = R::lamb,
       .weight_decay = 0.05,
       .epsilon = 1e-6,
       .clip_norm = 1,
       .average_decay = 0.9,
       .average_warmup = true},
  };
}

std::string described(const UpdateSettings& s, std::size_t which) {
  return "rule " + std::to_string(static_cast<int>(s.rule)) + " in form " + std::to_string(which);
}

class Update : public EveryBackend {
 protected:
  void expect_near(const std::vector<float>& actual, const std::vector<double>& expected, const std::string& what) {
    for (std::size_t i = 0; i < actual.size(); ++i) {
      // A few updates of values below about 2, each rounded to fp32.
      ASSERT_NEAR(static_cast<double>(actual[i]), expected[i], 3e-6 * (1 + std::fabs(expected[i]))) << what << " " << i;
    }
  }

  // `states`: the moments too, which have no meaning for segments that are not trained.
  void follows_reference(const std::vector<ParameterSegment>& segments, bool states = true) {
    const std::int64_t count = segments.back().offset + segments.back().count;
    const std::vector<UpdateSettings> forms = all_forms();
    for (std::size_t f = 0; f < forms.size(); ++f) {
      const std::vector<float> initial = random_floats(count);
      DeviceUpdate device(backend(), initial, segments, forms[f]);
      ReferenceUpdate expected(forms[f], segments, initial);
      for (const double lr : {0.05, 0.02, 0.04}) {
        const std::vector<float> gradient = random_gradient(count);
        const double momentum = forms[f].own_momentum() * (1 - lr);
        expected.update(gradient, lr, momentum);
        device.update(gradient, lr, static_cast<double>(expected.steps()), 0, momentum);
      }
      const std::string what = described(forms[f], f);
      expect_near(device.weights.get(), expected.weights, what + ": weight");
      if (states && forms[f].has_first()) expect_near(device.first.get(), expected.first, what + ": first");
      if (states && forms[f].has_second()) expect_near(device.second.get(), expected.second, what + ": second");
      if (forms[f].has_average()) expect_near(device.average.get(), expected.average, what + ": average");
    }
  }
};

TEST_P(Update, OfOneSegmentFollowsTheRules) { follows_reference({{0, 5000}}); }

TEST_P(Update, OfSegmentsWithTheirOwnRatesFollowsTheRules) {
  const std::int64_t large = kUpdateChunk + random_between(1, 500);
  follows_reference({{0, large, 1, 1, true},
                     {large, 17, 2, 0, false},
                     {large + 17, 0, 1, 1, true},
                     {large + 17, 300, 0.5F, 2, true}});
}

TEST_P(Update, OfSegmentsThatAreTrainedForSomeStepsFollowsTheRules) {
  follows_reference({{0, 500}, {500, 40, 1, 1, true, 0}, {540, 300, 1, 1, true, 1}, {840, 60, 2, 1, true, 2}},
                    /*states=*/false);
}

TEST_P(Update, OfSegmentsWhoseRateFallsFollowsTheRules) {
  ParameterSegment fades{0, kUpdateChunk + 20, 2, 0.5F};
  fades.fade_steps = 5;
  ParameterSegment stops{kUpdateChunk + 20, 60};
  stops.fade_steps = stops.last_step = 2;
  follows_reference({fades, stops, {kUpdateChunk + 80, 300}}, /*states=*/false);
}

// Not one bit changes, whatever the moments are.
TEST_P(Update, LeavesWeightsThatAreNotTrainedAsTheyAre) {
  for (const UpdateSettings& settings : all_forms()) {
    const std::vector<float> initial = random_floats(300);
    DeviceUpdate device(backend(), initial, {{0, 100}, {100, 200, 1, 1, true, 1}}, settings);
    device.update(random_gradient(300), 0.05, 1, 0);
    const std::vector<float> after_one = device.weights.get();
    for (const double step : {2.0, 3.0}) device.update(random_gradient(300), 0.05, step, 0);
    const std::vector<float> after = device.weights.get();
    EXPECT_TRUE(std::equal(after.begin() + 100, after.end(), after_one.begin() + 100));
    EXPECT_FALSE(std::equal(after.begin(), after.begin() + 100, after_one.begin()));
    EXPECT_FALSE(std::equal(after_one.begin() + 100, after_one.end(), initial.begin() + 100));
  }
}

// Zero weights or gradients give a ratio of 1, and all results are finite.
TEST_P(Update, OfZeroWeightsIsFinite) {
  for (const UpdateRule rule : {UpdateRule::lars, UpdateRule::lamb}) {
    const UpdateSettings settings{.rule = rule, .momentum = rule == UpdateRule::lars ? 0.9 : 0.0};
    const std::vector<ParameterSegment> segments = {{0, 10}, {10, 10}};
    DeviceUpdate device(backend(), std::vector<float>(20), segments, settings);
    std::vector<float> gradient(20);
    for (std::size_t i = 0; i < 10; ++i) gradient[i] = 0.5F;
    device.update(gradient, 0.1, 1, 0);
    const std::vector<float> weights = device.weights.get();
    for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(weights[i], rule == UpdateRule::lars ? -0.05F : -0.1F, 1e-5F);
    for (std::size_t i = 10; i < 20; ++i) EXPECT_EQ(weights[i], 0.0F);
  }
}

TEST_P(Update, IsSkippedOnRequest) {
  for (const UpdateSettings& settings : all_forms()) {
    const std::vector<float> initial = random_floats(300);
    DeviceUpdate device(backend(), initial, {{0, 300}}, settings);
    device.first.set(initial);
    device.second.set(initial);
    device.average.set(initial);
    for (const double skip : {1.0, 3.0, std::nan("")}) {
      device.update(random_floats(300), 0.5, 2, skip);
      EXPECT_EQ(device.weights.get(), initial);
      EXPECT_EQ(device.first.get(), initial);
      EXPECT_EQ(device.second.get(), initial);
      EXPECT_EQ(device.average.get(), initial);
    }
  }
}

// A power of two changes no bit of what is computed from the gradient.
TEST_P(Update, DividesTheGradientByItsLossScale) {
  constexpr float kScale = 4096;
  const std::vector<ParameterSegment> segments = {{0, 3 * kUpdateChunk}, {3 * kUpdateChunk, 55, 2, 0, true}};
  const std::vector<UpdateSettings> forms = all_forms();
  for (std::size_t f = 0; f < forms.size(); ++f) {
    const std::vector<float> initial = random_floats(3 * kUpdateChunk + 55);
    DeviceUpdate plain(backend(), initial, segments, forms[f]);
    DeviceUpdate scaled(backend(), initial, segments, forms[f]);
    for (const double step : {1.0, 2.0}) {
      std::vector<float> gradient = random_gradient(std::ssize(initial));
      plain.update(gradient, 0.05, step, 0);
      for (float& value : gradient) value *= kScale;
      scaled.update(gradient, 0.05, step, 0, std::nullopt, kScale);
    }
    EXPECT_EQ(scaled.weights.get(), plain.weights.get()) << described(forms[f], f);
    EXPECT_NE(plain.weights.get(), initial);
  }
}

TEST_P(Update, GivesTheSameBitsAgain) {
  const std::vector<ParameterSegment> segments = {{0, 3 * kUpdateChunk}, {3 * kUpdateChunk, 55, 2, 0, true}};
  const std::vector<float> initial = random_floats(3 * kUpdateChunk + 55);
  const std::vector<float> gradient = random_floats(3 * kUpdateChunk + 55);
  for (const UpdateRule rule : {UpdateRule::adam, UpdateRule::lars, UpdateRule::lamb}) {
    const UpdateSettings settings{.rule = rule, .weight_decay = 0.1, .clip_norm = 1};
    std::optional<std::vector<float>> before;
    for (int run = 0; run < 2; ++run) {
      DeviceUpdate device(backend(), initial, segments, settings);
      device.update(gradient, 0.1, 1, 0);
      if (before) {
        EXPECT_EQ(device.weights.get(), *before);
      }
      before = device.weights.get();
    }
  }
}

DDP_ON_EVERY_BACKEND(On, Update);

}  // namespace
}  // namespace ddp
