// The training step as a whole: the same results as PyTorch, on any number of ranks.
#include "train/step/step.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "comm/transport/self.h"
#include "comm/transport/threads.h"
#include "training_rig.h"

namespace ddp {
namespace {

nlohmann::json golden_file() {
  std::ifstream file(GOLDEN_DIR "/lenet_sgd.json");
  return nlohmann::json::parse(file);
}

TEST(GoldenFormulae, MakeWhatPyTorchTrainedOn) {
  const auto checks = golden_file()["checks"];
  EXPECT_EQ(golden::hash32(1), checks["hash32_of_0_1_2_4294967295"][1]);
  const golden::Samples samples(0, 64);
  std::int64_t sum = 0;
  for (const std::uint8_t byte : samples.pixels) sum += byte;
  EXPECT_EQ(sum, checks["sum_of_bytes_of_samples_0_to_63"]);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(samples.labels[i], checks["labels_of_samples_0_to_15"][i]);
  const Graph graph = make_model("lenet", {1, 28, 28}, 10);
  const std::vector<float> initial = golden::initial_parameters(graph);
  EXPECT_EQ(graph.parameter_count(), checks["parameters"]);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(static_cast<double>(initial[i]), checks["initial_parameters_0_to_3"][i].get<double>());
  }
}

// The losses of `steps` steps of a golden recipe on `ranks` ranks, as seen by rank 0.
std::vector<double> losses_of(const nlohmann::json& recipe, int ranks, Reduction algorithm, int shards,
                              std::vector<float>* final_parameters = nullptr) {
  RigConfig config;
  config.global_batch = recipe["batch"];
  config.shards = shards;
  config.algorithm = algorithm;
  config.optimizer.momentum = recipe["momentum"];
  config.optimizer.nesterov = recipe["nesterov"];
  config.optimizer.weight_decay = recipe["weight_decay"];
  std::vector<double> losses;
  run_as_threads(ranks, [&](Communicator& communicator) {
    omp_set_num_threads(1);
    TrainingRig rig(communicator, config);
    for (std::int64_t s = 0; s < recipe["steps"]; ++s) {
      const StepResult result = rig.run(s + 1, s * config.global_batch, config.global_batch, recipe["lr"]);
      if (communicator.rank() == 0) losses.push_back(result.loss);
    }
    if (communicator.rank() == 0 && final_parameters != nullptr) *final_parameters = rig.parameters;
  });
  return losses;
}

// The difference is single-precision rounding; PyTorch's own float32 run is about as far from float64.
TEST(TrainStep, FollowsPyTorchForAHundredSteps) {
  const nlohmann::json file = golden_file();
  for (const auto& run : file["runs"]) {
    std::vector<float> parameters;
    const std::vector<double> losses = losses_of(run["recipe"], 1, Reduction::ring, 1, &parameters);
    ASSERT_EQ(losses.size(), run["loss_float64"].size());
    for (std::size_t s = 0; s < losses.size(); ++s) {
      const double expected = run["loss_float64"][s];
      EXPECT_NEAR(losses[s], expected, 1e-4 * expected) << run["recipe"]["name"] << " step " << s;
    }
    const Graph graph = make_model("lenet", {1, 28, 28}, 10);
    for (const Parameter& p : graph.parameters()) {
      double squares = 0;
      for (std::int64_t i = 0; i < p.elements(); ++i) {
        const auto value = static_cast<double>(parameters[static_cast<std::size_t>(p.offset + i)]);
        squares += value * value;
      }
      const double expected = run["final_parameters_float64"][p.name]["sum_of_squares"];
      EXPECT_NEAR(squares, expected, 1e-3 * expected) << p.name;
    }
  }
}

// One global batch on 1 to 4 ranks (64 is not divisible by 3): losses agree within 1e-5.
TEST(TrainStep, AnyNumberOfRanksIsTheSameComputation) {
  const nlohmann::json recipe = golden_file()["runs"][0]["recipe"];
  const std::vector<double> one = losses_of(recipe, 1, Reduction::ring, 0);
  for (const int ranks : {2, 3, 4}) {
    for (const Reduction algorithm : {Reduction::ring, Reduction::root}) {
      if (algorithm == Reduction::root && ranks != 3) continue;
      const std::vector<double> many = losses_of(recipe, ranks, algorithm, 0);
      for (std::size_t s = 0; s < one.size(); ++s) {
        EXPECT_NEAR(many[s], one[s], 1e-5 * one[s]) << ranks << " ranks, step " << s;
      }
    }
  }
}

// No rank's gradients and no updates may change the padding between parameters.
TEST(TrainStep, WhatLiesBetweenParametersStaysZero) {
  for (const Reduction algorithm : {Reduction::tree, Reduction::ring, Reduction::root}) {
    for (const int ranks : {1, 3}) {
      RigConfig config;
      config.global_batch = 64;
      config.shards = 5;
      config.algorithm = algorithm;
      config.optimizer = {.rule = UpdateRule::adam, .weight_decay = 0.1, .clip_norm = 1};
      run_as_threads(ranks, [&](Communicator& communicator) {
        omp_set_num_threads(1);
        TrainingRig rig(communicator, config);
        for (std::int64_t s = 0; s < 3; ++s) (void)rig.run(s + 1, 64 * s, 64, 0.01);
        std::vector<bool> between(rig.parameters.size(), true);
        for (const Parameter& p : rig.graph.parameters()) {
          std::fill_n(between.begin() + p.offset, p.elements(), false);
        }
        EXPECT_EQ(std::count(between.begin(), between.end(), true),
                  rig.graph.flat_elements() - rig.graph.parameter_count());
        for (std::size_t i = 0; i < between.size(); ++i) {
          if (!between[i]) continue;
          ASSERT_EQ(rig.parameters[i], 0.0F) << i;
          ASSERT_EQ(rig.reducer.gradient()[i], 0.0F) << i;
        }
      });
    }
  }
}

// With a given number of logical shards and the fixed tree, results are bit-identical on any number of ranks.
TEST(TrainStep, TheFixedTreeGivesTheSameBitsOnAnyNumberOfRanks) {
  nlohmann::json recipe = golden_file()["runs"][0]["recipe"];
  recipe["steps"] = 10;
  for (const int shards : {4, 6}) {
    std::vector<float> expected;
    const std::vector<double> losses = losses_of(recipe, 1, Reduction::tree, shards, &expected);
    for (int ranks = 2; ranks <= shards; ++ranks) {
      std::vector<float> actual;
      EXPECT_EQ(losses_of(recipe, ranks, Reduction::tree, shards, &actual), losses) << ranks;
      EXPECT_EQ(actual, expected) << ranks << " ranks, " << shards << " shards";
    }
  }
}

// A last batch with fewer samples than ranks leaves some ranks without samples.
TEST(TrainStep, ASmallLastBatchCountsEachSampleOnce) {
  double expected = 0;
  for (const int ranks : {1, 3}) {
    run_as_threads(ranks, [&](Communicator& communicator) {
      omp_set_num_threads(1);
      TrainingRig rig(communicator, {.global_batch = 64});
      const StepResult result = rig.run(1, 0, 2, 0.1);
      if (communicator.rank() != 0) return;
      if (communicator.size() == 1) expected = result.loss;
      EXPECT_NEAR(result.loss, expected, 1e-6);
    });
  }
}

TEST(TrainStep, ALossThatIsNoNumberStopsAllRanksBeforeTheUpdate) {
  run_as_threads(3, [&](Communicator& communicator) {
    omp_set_num_threads(1);
    TrainingRig rig(communicator, {.global_batch = 24});
    rig.parameters[5] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> before = rig.parameters;
    const StepResult result = rig.run(1, 0, 24, 0.1);
    EXPECT_FALSE(result.finite);
    for (std::size_t i = 6; i < before.size(); ++i) ASSERT_EQ(rig.parameters[i], before[i]);
  });
}

// The results of three steps, the last of a small batch, on rank 0.
std::vector<StepResult> results_of(int ranks, const RigConfig& config) {
  std::vector<StepResult> results;
  run_as_threads(ranks, [&](Communicator& communicator) {
    omp_set_num_threads(1);
    TrainingRig rig(communicator, config);
    std::vector<StepResult> mine;
    std::int64_t number = 0;
    for (const std::int64_t samples : {64, 64, 2}) {
      ++number;
      mine.push_back(rig.run(number, 64 * number, samples, 0.1));
      EXPECT_TRUE(mine.back().finite);
    }
    if (config.keeps_results) {
      rig.step.forget_last();
      mine = rig.step.collect(communicator);
      EXPECT_EQ(mine.size(), communicator.rank() == 0 ? 2U : 0U);
      (void)rig.run(++number, 64 * 3, 2, 0.1);
      for (const StepResult& last : rig.step.collect(communicator)) mine.push_back(last);
    }
    if (communicator.rank() == 0) results = mine;
  });
  return results;
}

// Whatever the ranks share or divide. The last step is made twice where it is collected, so its loss is that of other weights.
TEST(TrainStep, CollectedResultsAreThoseOfEachStep) {
  const std::vector<std::pair<int, RigConfig>> cases = {{1, {}},
                                                        {3, {}},
                                                        {2, {.queued = true}},
                                                        {3, {.shards = 5, .algorithm = Reduction::tree}},
                                                        {2, {.split = "fc1"}},
                                                        {4, {.hosts = {0, 0, 1, 1}}}};
  for (const auto& [ranks, plain] : cases) {
    RigConfig keeps = plain;
    keeps.keeps_results = true;
    const std::vector<StepResult> expected = results_of(ranks, plain);
    const std::vector<StepResult> results = results_of(ranks, keeps);
    ASSERT_EQ(results.size(), 3U);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(results[i].loss, expected[i].loss) << ranks << " ranks, step " << i;
      EXPECT_EQ(results[i].correct, expected[i].correct);
      EXPECT_EQ(results[i].grad_norm, expected[i].grad_norm);
      EXPECT_EQ(results[i].hashes.samples, expected[i].hashes.samples);
      EXPECT_EQ(results[i].hashes.pixels, expected[i].hashes.pixels);
      EXPECT_EQ(results[i].hashes.weights, expected[i].hashes.weights);
    }
    EXPECT_EQ(results[2].hashes.samples, expected[2].hashes.samples);
  }
}

// Whether the squares of each bucket or of each rank are added first, the norm is the same up to rounding.
TEST(TrainStep, TheNormIsThatOfAllParts) {
  const RigConfig parts{.hosts = {0, 0, 1, 1}};
  RigConfig buckets = parts;
  buckets.squares_by_range = true;
  const std::vector<StepResult> whole = results_of(4, {});
  const std::vector<StepResult> by_rank = results_of(4, parts);
  const std::vector<StepResult> by_bucket = results_of(4, buckets);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(by_rank[i].grad_norm, whole[i].grad_norm, 1e-5 * whole[i].grad_norm);
    EXPECT_NEAR(by_bucket[i].grad_norm, by_rank[i].grad_norm, 1e-12 * by_rank[i].grad_norm);
  }
}

TEST(TrainStep, KeptResultsDoNotHideALossThatIsNoNumber) {
  for (const std::vector<int>& hosts : {std::vector<int>(), std::vector<int>{0, 0, 0}}) {
    run_as_threads(3, [&](Communicator& communicator) {
      omp_set_num_threads(1);
      TrainingRig rig(communicator, {.global_batch = 24, .keeps_results = true, .hosts = hosts});
      EXPECT_TRUE(rig.run(1, 0, 24, 0.1).finite);
      if (communicator.rank() == 0) rig.weights()[5] = std::numeric_limits<float>::quiet_NaN();
      communicator.barrier();
      EXPECT_FALSE(rig.run(2, 0, 24, 0.1).finite);
      EXPECT_EQ(rig.step.collect(communicator).size(), communicator.rank() == 0 ? 2U : 0U);
    });
  }
}

TEST(TrainStep, ARequestOfOneRankReachesAll) {
  run_as_threads(3, [&](Communicator& communicator) {
    omp_set_num_threads(1);
    TrainingRig rig(communicator, {.global_batch = 12});
    const StepResult quiet = rig.run(1, 0, 12, 0.1);
    EXPECT_FALSE(quiet.request.stop || quiet.request.checkpoint);
    const StepResult asked = rig.run(2, 0, 12, 0.1, {communicator.rank() == 2, communicator.rank() == 1});
    EXPECT_TRUE(asked.request.stop && asked.request.checkpoint);
  });
}

// One rank's results after each of a few steps; the third step is smaller.
struct Trace {
  std::vector<double> losses;
  std::vector<float> parameters;
  bool operator==(const Trace&) const = default;
};
std::vector<Trace> traces(int ranks, const RigConfig& config) {
  std::vector<Trace> all(static_cast<std::size_t>(ranks));
  run_as_threads(ranks, [&](Communicator& communicator) {
    omp_set_num_threads(1);
    TrainingRig rig(communicator, config);
    Trace& trace = all[static_cast<std::size_t>(communicator.rank())];
    for (const std::int64_t samples : {64, 64, 41, 64, 64}) {
      trace.losses.push_back(rig.run(1 + static_cast<std::int64_t>(trace.losses.size()), 0, samples, 0.1).loss);
    }
    trace.parameters = rig.parameters;
    if (const auto* queued = dynamic_cast<const LazyQueue*>(&rig.backend->queue())) {
      // Sums through the host cannot be recorded; a single rank records its second full step and replays it from then
      // on.
      EXPECT_EQ(queued->recordings, ranks == 1 ? 1 : 0);
      EXPECT_EQ(queued->replays, ranks == 1 ? 3 : 0);
    }
  });
  return all;
}

// A device that executes only when the host waits gives bit-identical results to the CPU: nothing is read or
// overwritten too early, and a replayed step equals an ordinary one.
TEST(TrainStep, AQueueOfWorkIsTheSameComputation) {
  for (const int ranks : {1, 2, 3}) {
    for (const int shards : {ranks, 4}) {
      for (const Reduction algorithm : {Reduction::ring, Reduction::tree}) {
        RigConfig config{.global_batch = 64,
                         .shards = shards,
                         .algorithm = algorithm,
                         .optimizer = {.momentum = 0.9, .nesterov = true, .weight_decay = 5e-4}};
        const std::vector<Trace> direct = traces(ranks, config);
        config.queued = true;
        EXPECT_EQ(traces(ranks, config), direct) << ranks << " ranks, " << shards << " shards";
      }
    }
  }
}

// All inputs of an update change from step to step: the number of the update, norms, the learning rate.
TEST(TrainStep, ARecordedStepOfAnyOptimizerIsAStep) {
  for (const UpdateRule rule : {UpdateRule::adam, UpdateRule::rmsprop, UpdateRule::lars, UpdateRule::lamb}) {
    RigConfig config{.global_batch = 64, .shards = 2};
    config.optimizer = {.rule = rule, .weight_decay = 0.01, .clip_norm = 0.5, .average_decay = 0.9};
    config.optimizer.average_warmup = true;
    const std::vector<Trace> direct = traces(1, config);
    config.queued = true;
    EXPECT_EQ(traces(1, config), direct) << static_cast<int>(rule);
  }
}

// A loss scale is a power of two, which the update takes back, in recorded steps too.
TEST(TrainStep, ALossScaleChangesNoBitInFp32) {
  for (const int ranks : {1, 2}) {
    RigConfig config{.global_batch = 64, .shards = 2, .optimizer = {.momentum = 0.9, .clip_norm = 0.5}};
    const std::vector<Trace> plain = traces(ranks, config);
    config.scales_loss = true;
    EXPECT_EQ(traces(ranks, config), plain) << ranks << " ranks";
    config.queued = true;
    EXPECT_EQ(traces(ranks, config), plain) << ranks << " ranks";
  }
}

TEST(TrainStep, AQueueOfWorkUpdatesNothingAfterALossThatIsNoNumber) {
  run_as_threads(2, [&](Communicator& communicator) {
    omp_set_num_threads(1);
    TrainingRig rig(communicator, {.global_batch = 24, .optimizer = {.momentum = 0.9}, .queued = true});
    EXPECT_TRUE(rig.run(1, 0, 24, 0.1).finite);
    if (communicator.rank() == 1) rig.parameters[5] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> before = rig.parameters;
    EXPECT_FALSE(rig.run(2, 0, 24, 0.1).finite);
    for (std::size_t i = 6; i < before.size(); ++i) ASSERT_EQ(rig.parameters[i], before[i]);
  });
}

TEST(TrainStep, ARecordedStepTakesTheLearningRateOfItsTurn) {
  const auto self = make_self_communicator();
  TrainingRig rig(*self, {.global_batch = 24, .queued = true});
  for (int s = 0; s < 3; ++s) (void)rig.run(s + 1, 0, 24, 0.1);
  const std::vector<float> before = rig.parameters;
  EXPECT_TRUE(rig.run(4, 0, 24, 0).finite);
  EXPECT_EQ(rig.parameters, before);
  EXPECT_TRUE(rig.run(5, 0, 24, 0.1).finite);
  EXPECT_NE(rig.parameters, before);
}

TEST(TrainStep, ARecordedStepTakesTheMomentumOfItsTurn) {
  const auto self = make_self_communicator();
  for (const UpdateRule rule : {UpdateRule::sgd, UpdateRule::adam}) {
    RigConfig config{.global_batch = 24, .optimizer = {.rule = rule, .momentum = 0.9}};
    TrainingRig direct(*self, config);
    config.queued = true;
    TrainingRig recorded(*self, config);
    TrainingRig constant(*self, config);
    for (int s = 0; s < 5; ++s) {
      direct.momentum = recorded.momentum = 0.95 - 0.1 * s;
      for (TrainingRig* rig : {&direct, &recorded, &constant}) (void)rig->run(s + 1, 0, 24, 0.001);
    }
    EXPECT_EQ(recorded.parameters, direct.parameters);
    EXPECT_NE(recorded.parameters, constant.parameters);
  }
}

TEST(TrainStep, TheTimeOfAStepIsSplitAndAddsUp) {
  const auto self = make_self_communicator();
  TrainingRig rig(*self, {.global_batch = 64});
  const double begin = now();
  for (int s = 0; s < 5; ++s) (void)rig.run(s + 1, 0, 64, 0.1);
  const PhaseTotals totals = rig.clock.totals();
  EXPECT_GT(totals[Phase::forward], 0);
  EXPECT_GT(totals[Phase::backward], totals[Phase::optimizer]);
  EXPECT_GE(totals.sum(), now() - begin);  // the clock started before the first step
}

}  // namespace
}  // namespace ddp
