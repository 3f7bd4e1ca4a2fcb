#include "steps_ahead.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>

#include "comm/transport/threads.h"

namespace ddp::testing {
namespace {

void note(const StepResult& result, Outcome& outcome) {
  EXPECT_TRUE(result.finite);
  outcome.losses.push_back(result.loss);
  outcome.norms.push_back(result.grad_norm);
  outcome.correct.push_back(result.correct);
  for (const std::uint64_t hash : {result.hashes.samples, result.hashes.weights}) outcome.hashes.push_back(hash);
  outcome.pixels.push_back(result.hashes.pixels);
}

// The steps up to the next that has fewer samples, as the last one of an epoch.
template <class StepOf>
std::vector<RigStep> epoch_from(std::size_t begun, std::span<const std::int64_t> samples, const StepOf& step_of) {
  std::vector<RigStep> steps;
  for (bool ends = false; !ends; ++begun) {
    steps.push_back(step_of(begun));
    ends = samples[begun] != samples[0] || begun + 1 == samples.size();
  }
  return steps;
}

// Whether the next of these steps may begin at once: if all have a full batch, and there are slots for them.
bool begins_several(const TrainingRig& rig, const RigConfig& config, std::span<const std::int64_t> samples) {
  if (config.together == 1 || samples.size() < config.together) return false;
  const std::span<const std::int64_t> next = samples.first(config.together);
  return rig.step.in_flight() + config.together <= config.ahead &&
         std::ranges::all_of(next, [&](std::int64_t each) { return each == config.global_batch; });
}

std::vector<float> parameters_of(TrainingRig& rig) {
  rig.backend->queue().synchronize();
  return rig.parameters;
}

}  // namespace

Outcome train_ahead(int ranks, const RigConfig& config, std::uint32_t seed) {
  const std::int64_t all = config.global_batch;
  const std::array<std::int64_t, 9> samples = {all, all, all / 2 + 1, all, all, all, 2, all, all};
  Outcome outcome;
  run_as_threads(ranks, [&](Communicator& communicator) {
    omp_set_num_threads(1);
    TrainingRig rig(communicator, config);
    std::mt19937 random(seed);
    Outcome mine;
    const auto step_of = [&](std::size_t begun) {
      const auto number = static_cast<std::int64_t>(begun) + 1;
      return RigStep{number, all * number, samples.at(begun), 0.1 / static_cast<double>(number)};
    };
    if (config.images > RigImages::resident) {
      std::vector<RigStep> steps;
      for (std::size_t s = 0; s < samples.size(); ++s) steps.push_back(step_of(s));
      rig.read(steps);
    }
    for (std::size_t begun = 0; begun < samples.size() || rig.step.in_flight() > 0;) {
      const bool loads = config.loaded_steps > 0 && (begun == 0 || samples.at(begun - 1) < all);
      const bool full = rig.step.in_flight() == config.ahead;
      const bool more = begun < samples.size() && !full && !loads && random() % 3 > 0;
      if (more || (begun < samples.size() && rig.step.in_flight() == 0)) {
        if (loads) rig.load(epoch_from(begun, samples, step_of));
        if (begins_several(rig, config, std::span(samples).subspan(begun)) && random() % 2 > 0) {
          rig.step.begin_loaded(rig.parameters.data(), {}, config.together);
          begun += config.together;
          continue;
        }
        const RigStep next = step_of(begun);
        rig.begin(next.number, next.first, next.samples, next.lr);
        ++begun;
      } else {
        note(rig.step.finish(), mine);
      }
    }
    mine.parameters = parameters_of(rig);
    if (communicator.rank() == 0) outcome = std::move(mine);
  });
  return outcome;
}

void halts_and_resumes(int ranks, const RigConfig& config) {
  const std::int64_t all = config.global_batch;
  run_as_threads(ranks, [&](Communicator& communicator) {
    omp_set_num_threads(1);
    RigConfig one_by_one = config;
    one_by_one.record = false;
    one_by_one.queued = false;
    one_by_one.loaded_steps = 0;
    TrainingRig expected(communicator, one_by_one);
    TrainingRig rig(communicator, config);
    const float nothing = std::numeric_limits<float>::quiet_NaN();
    for (int s = 1; s <= 2; ++s) (void)expected.run(s, all * s, all, 0.1);
    std::vector<RigStep> steps;
    for (int s = 1; s <= 5; ++s) steps.push_back({s, all * s, all, 0.1});
    if (config.loaded_steps > 0) rig.load(steps);
    // On one rank only; the others learn of it.
    const bool culprit = communicator.rank() == ranks - 1;
    for (int s = 1; s <= 5; ++s) {
      if (s == 3 && culprit) rig.backend->queue().upload(&rig.parameters[5], &nothing, sizeof nothing);
      rig.begin(s, all * s, all, 0.1, {.stop = s == 4 && culprit, .checkpoint = s == 5});
    }
    EXPECT_TRUE(rig.step.finish().finite);
    EXPECT_TRUE(rig.step.finish().finite);
    EXPECT_FALSE(rig.step.finish().finite);
    const Request dropped = rig.step.resume();
    EXPECT_TRUE(dropped.stop && dropped.checkpoint);
    EXPECT_EQ(rig.step.in_flight(), 0U);
    (void)parameters_of(rig);
    EXPECT_EQ(*rig.step.halted(), 0);
    if (culprit) rig.parameters[5] = expected.parameters[5];
    EXPECT_EQ(rig.parameters, parameters_of(expected));
    const std::vector<OptimizerState> state = rig.optimizer.state();
    ASSERT_EQ(state.size(), 1U);
    EXPECT_TRUE(
        std::equal(state[0].values, state[0].values + rig.optimizer.elements(), expected.optimizer.state()[0].values));
    // One after the other: the stand-in GPU runs the kernels of one backend at a time.
    for (int s = 3; s <= 5; ++s) (void)expected.run(s, all * s, all, 0.1);
    if (config.loaded_steps > 0) rig.load({steps.begin() + 2, steps.end()});
    for (int s = 3; s <= 5; ++s) rig.begin(s, all * s, all, 0.1);
    while (rig.step.in_flight() > 0) EXPECT_TRUE(rig.step.finish().finite);
    EXPECT_EQ(parameters_of(rig), parameters_of(expected));
  });
}

void halts_within_several(int ranks, RigConfig config) {
  const std::int64_t all = config.global_batch;
  const double infinite = std::numeric_limits<double>::infinity();
  // The update of the second step makes weights infinite.
  const std::vector<RigStep> steps = {
      {1, all, all, 0.1}, {2, 2 * all, all, infinite}, {3, 3 * all, all, 0.1}, {4, 4 * all, all, 0.1}};
  config.ahead = steps.size() + 1;
  config.loaded_steps = steps.size();
  config.together = steps.size();
  config.optimizer.momentum = 0.9;
  run_as_threads(ranks, [&](Communicator& communicator) {
    omp_set_num_threads(1);
    RigConfig one_by_one = config;
    one_by_one.together = 1;
    std::vector<std::vector<std::uint32_t>> bits;
    for (const RigConfig& each : {one_by_one, config}) {
      TrainingRig rig(communicator, each);
      const auto begin = [&] {
        if (each.together == 1) {
          for (std::size_t s = 0; s < steps.size(); ++s) rig.step.begin_loaded(rig.parameters.data(), {});
        } else {
          rig.step.begin_loaded(rig.parameters.data(), {.checkpoint = true}, each.together);
        }
      };
      // Once without an update that breaks anything, so that the next ones are recorded.
      rig.load({4, {1, all, all, 0}});
      begin();
      while (rig.step.in_flight() > 0) EXPECT_TRUE(rig.step.finish().finite);
      rig.load(steps);
      begin();
      for (const bool finite : {true, true, false, false}) {
        const StepResult result = rig.step.finish();
        EXPECT_EQ(result.finite, finite);
        EXPECT_EQ(result.request.checkpoint, each.together > 1);
      }
      (void)rig.step.resume();
      const std::vector<float> after = parameters_of(rig);
      EXPECT_FALSE(std::ranges::all_of(after, [](float value) { return std::isfinite(value); }));
      bits.emplace_back(after.size());
      std::memcpy(bits.back().data(), after.data(), after.size() * sizeof(float));
    }
    EXPECT_EQ(bits[0], bits[1]);
  });
}

}  // namespace ddp::testing
