#include "optim/optimizer.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace ddp {
namespace {

const std::vector<ParameterSegment> kFive = {{0, 5}};

std::vector<std::string> names(const UpdateSettings& settings) {
  const auto backend = make_cpu_backend();
  Optimizer optimizer(*backend, kFive, settings);
  EXPECT_EQ(optimizer.bytes(), state_buffers(settings) * aligned_bytes(5 * sizeof(float)));
  std::vector<std::string> result;
  for (const OptimizerState& state : optimizer.state()) result.push_back(state.name);
  EXPECT_EQ(result.size(), state_buffers(settings));
  return result;
}

TEST(Optimizer, KeepsTheStateThatItsRuleNeeds) {
  using R = UpdateRule;
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({}), Names{});
  EXPECT_EQ(names({.momentum = 0.9}), Names{"momentum"});
  EXPECT_EQ(names({.average_decay = 0.9}), Names{"ema"});
  EXPECT_EQ(names({.rule = R::adam}), (Names{"exp_avg", "exp_avg_sq"}));
  EXPECT_EQ(names({.rule = R::rmsprop}), Names{"square_avg"});
  EXPECT_EQ(names({.rule = R::rmsprop, .momentum = 0.9, .average_decay = 0.9}),
            (Names{"momentum", "square_avg", "ema"}));
  EXPECT_EQ(names({.rule = R::lars, .momentum = 0.9}), Names{"momentum"});
  EXPECT_EQ(names({.rule = R::lamb}), (Names{"exp_avg", "exp_avg_sq"}));
}

// Weights and state of two tensors after three updates; the tensors are adjacent or separated by `gap` zeros.
std::vector<float> updated(const UpdateSettings& settings, std::size_t gap) {
  constexpr std::size_t kFirst = 5000;
  constexpr std::size_t kSecond = 77;
  const auto second = static_cast<std::int64_t>(kFirst + gap);
  const std::vector<ParameterSegment> segments = {{0, kFirst}, {second, kSecond}};
  const auto backend = make_cpu_backend();
  Optimizer optimizer(*backend, segments, settings);
  EXPECT_EQ(optimizer.elements(), kFirst + gap + kSecond);
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i < kFirst || i >= kFirst + gap) values[i] = normal(engine);
    }
  };
  std::vector<float> weights(optimizer.elements());
  std::vector<float> gradient(optimizer.elements());
  fill(weights);
  for (int step = 1; step <= 3; ++step) {
    fill(gradient);
    const StepControl control{0.01, settings.own_momentum(), static_cast<double>(step)};
    const double skip = 0;
    optimizer.update(weights.data(), gradient.data(), &control, &skip);
  }
  std::vector<float> result;
  const auto keep = [&](const float* values) {
    for (std::size_t i = kFirst; i < kFirst + gap; ++i) EXPECT_EQ(values[i], 0.0F) << i;
    result.insert(result.end(), values, values + kFirst);
    result.insert(result.end(), values + kFirst + gap, values + kFirst + gap + kSecond);
  };
  keep(weights.data());
  for (const OptimizerState& state : optimizer.state()) keep(state.values);
  return result;
}

// Norms, clipping, decay and averages ignore padding; without an epsilon, a rule would compute 0/0 there.
TEST(Optimizer, WhatLiesBetweenTensorsStaysZeroAndChangesNoBit) {
  for (const UpdateRule rule :
       {UpdateRule::sgd, UpdateRule::adam, UpdateRule::rmsprop, UpdateRule::lars, UpdateRule::lamb, UpdateRule::muon}) {
    for (const double epsilon : {1e-8, 0.0}) {
      SCOPED_TRACE(testing::Message() << "rule " << static_cast<int>(rule) << " epsilon " << epsilon);
      UpdateSettings settings{.rule = rule, .weight_decay = 0.1, .epsilon = epsilon, .clip_norm = 1};
      settings.average_decay = 0.9;
      EXPECT_EQ(updated(settings, 51), updated(settings, 0));
    }
  }
}

// The result of some updates on a given number of threads.
struct Outcome {
  std::vector<float> weights;
  std::vector<std::vector<float>> state;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const UpdateSettings& settings, int threads, int stop_after) {
  omp_set_num_threads(threads);
  const std::vector<ParameterSegment> segments = {{0, 9001}, {9001, 30, 2, 0, false}};
  constexpr std::size_t kCount = 9031;
  std::mt19937 engine(7);
  std::normal_distribution<float> normal;
  Outcome result;
  result.weights.resize(kCount);
  for (float& value : result.weights) value = normal(engine);
  const auto backend = make_cpu_backend();
  auto optimizer = std::make_unique<Optimizer>(*backend, segments, settings);
  std::vector<float> gradient(kCount);
  for (int step = 1; step <= 6; ++step) {
    for (float& value : gradient) value = normal(engine);
    const StepControl control{0.01 * step, settings.own_momentum() * (1 - 0.05 * step), static_cast<double>(step)};
    const double skip = 0;
    optimizer->update(result.weights.data(), gradient.data(), &control, &skip);
    if (step != stop_after) continue;
    // Like a checkpoint, copies only the state, by name.
    auto resumed = std::make_unique<Optimizer>(*backend, segments, settings);
    const std::vector<OptimizerState> from = optimizer->state();
    const std::vector<OptimizerState> to = resumed->state();
    for (std::size_t s = 0; s < from.size(); ++s) {
      EXPECT_EQ(from[s].name, to[s].name);
      std::copy_n(from[s].values, kCount, to[s].values);
    }
    optimizer = std::move(resumed);
  }
  for (const OptimizerState& state : optimizer->state()) {
    result.state.emplace_back(state.values, state.values + kCount);
  }
  omp_set_num_threads(1);
  return result;
}

TEST(Optimizer, GivesTheSameBitsOnAnyNumberOfThreadsAndWhenResumed) {
  for (const UpdateRule rule :
       {UpdateRule::sgd, UpdateRule::adam, UpdateRule::rmsprop, UpdateRule::lars, UpdateRule::lamb, UpdateRule::muon}) {
    UpdateSettings settings{.rule = rule, .weight_decay = 0.01, .clip_norm = 20, .average_decay = 0.99};
    settings.average_warmup = true;
    if (rule != UpdateRule::adam && rule != UpdateRule::lamb) settings.momentum = 0.9;
    const Outcome expected = run(settings, 1, 0);
    for (const int threads : {2, 3}) EXPECT_EQ(run(settings, threads, 0), expected) << threads << " threads";
    for (const int stop : {1, 4}) EXPECT_EQ(run(settings, 1, stop), expected) << "stopped after " << stop;
  }
}

TEST(Optimizer, IsWhatTheOptionsAskFor) {
  OptimizerOptions options;
  options.optimizer = UpdateRule::adamw;
  EXPECT_TRUE(update_settings(options).decays_weights());
  EXPECT_EQ(update_settings(options).rule, UpdateRule::adamw);
  options.optimizer = UpdateRule::adam;
  EXPECT_FALSE(update_settings(options).decays_weights());
  options.decay = DecayKind::decoupled;
  EXPECT_TRUE(update_settings(options).decays_weights());
  options.optimizer = UpdateRule::rmsprop;
  options.rmsprop_form = RmspropForm::keras;
  EXPECT_TRUE(update_settings(options).keras);
  options.optimizer = UpdateRule::muon;
  options.muon_momentum = 0.6;
  options.muon_steps = 3;
  options.muon_normalize = true;
  options.muon_scale = MuonScale::none;
  const UpdateSettings muon = update_settings(options);
  EXPECT_EQ(muon.rule, UpdateRule::muon);
  EXPECT_EQ(muon.muon_momentum, 0.6);
  EXPECT_EQ(muon.muon_steps, 3);
  EXPECT_TRUE(muon.muon_normalizes);
  EXPECT_EQ(muon.muon_scale, MuonScale::none);
  options.muon_scale = MuonScale::rms;
  EXPECT_EQ(update_settings(options).muon_scale, MuonScale::rms);
}

}  // namespace
}  // namespace ddp
