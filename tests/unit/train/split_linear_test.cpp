#include "train/parallel/split_linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "comm/transport/threads.h"
#include "model/zoo.h"
#include "support/errors.h"
#include "train/step/parameter_segments.h"
#include "training_rig.h"

// A namespace of its own, since the files of a test program may be compiled together.
namespace ddp::split_linear_tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Graph lenet() { return make_model("lenet", {1, 28, 28}, 10); }

std::vector<std::string> names(const Graph& graph, const std::vector<int>& layers) {
  std::vector<std::string> result;
  for (const int layer : layers) result.push_back(graph.layers()[static_cast<std::size_t>(layer)].name);
  return result;
}

TEST(SplitLinear, LayersAreChosenByTheirNames) {
  const Graph graph = lenet();
  EXPECT_THAT(names(graph, layers_to_split(graph, "fc1", 4)), ElementsAre("fc1"));
  EXPECT_THAT(names(graph, layers_to_split(graph, "fc2,fc*", 2)), ElementsAre("fc1", "fc2"));
  EXPECT_THAT(names(graph, layers_to_split(graph, "*", 1)), ElementsAre("fc1", "fc2"));
}

TEST(SplitLinear, WhatCannotBeDividedIsRefused) {
  const Graph graph = lenet();
  const auto refusal = [](const Graph& of, const std::string& patterns, int ranks) {
    return error_text(ExitCode::usage, [&] { (void)layers_to_split(of, patterns, ranks); });
  };
  EXPECT_THAT(refusal(graph, "fc*", 4), HasSubstr("4 ranks cannot have equal parts of the 10 outputs of layer 'fc2'"));
  EXPECT_THAT(refusal(graph, "fc1", 256), HasSubstr("256 ranks cannot have equal parts of the 128 outputs"));
  EXPECT_THAT(refusal(graph, "fc1,conv1", 2),
              HasSubstr("no linear layer of the model matches 'conv1'; there are fc1, fc2"));
  EXPECT_THAT(refusal(graph, "fc1,", 2), HasSubstr("matches ''"));
  Graph convolutions({1, 8, 8});
  convolutions.flatten(convolutions.conv("conv", convolutions.input(), {.channels = 3, .window = square(8)}));
  EXPECT_THAT(refusal(convolutions, "*", 2), HasSubstr("the model has no linear layer"));
}

TEST(ParameterSlices, TogetherAreTheDividedParameters) {
  const Graph graph = lenet();
  constexpr int kRanks = 4;
  const std::vector<int> layers = layers_to_split(graph, "fc1", kRanks);
  std::vector<int> holders(static_cast<std::size_t>(graph.flat_elements()));
  std::int64_t weights = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const ParameterSlices slices(graph, layers, kRanks, rank);
    EXPECT_TRUE(slices.any());
    EXPECT_EQ(slices.elements(), 800 * 128 + 128);
    for (const Range& held : slices.held()) {
      for (std::int64_t i = held.begin; i < held.end; ++i) ++holders[static_cast<std::size_t>(i)];
    }
    EXPECT_EQ(slices.last_weights(100).size(), 100);
    EXPECT_EQ(slices.last_weights(100).end, slices.held()[0].end);
    EXPECT_EQ(slices.last_weights(1 << 20), slices.held()[0]);
    weights += slices.held()[0].size();
    std::vector<ParameterSegment> segments = parameter_segments(graph, {}, 10);
    const std::vector<ParameterSegment> before = segments;
    slices.restrict_to_held(segments);
    for (std::size_t p = 0; p < segments.size(); ++p) {
      EXPECT_EQ(segments[p].offset, before[p].offset);
      EXPECT_EQ(segments[p].count, before[p].count);
      const bool divided = graph.parameters()[p].name.starts_with("fc1.");
      EXPECT_EQ(slices.divided()[p], divided);
      EXPECT_EQ(segments[p].part_count, divided ? segments[p].count / kRanks : 0);
      EXPECT_EQ(segments[p].part_begin, divided ? rank * segments[p].count / kRanks : 0);
    }
  }
  EXPECT_EQ(weights, 800 * 128);
  for (const Parameter& p : graph.parameters()) {
    const int expected = p.name.starts_with("fc1.") ? 1 : 0;
    for (std::int64_t i = p.offset; i < p.offset + p.flat_elements(); ++i) {
      ASSERT_EQ(holders[static_cast<std::size_t>(i)], i < p.offset + p.elements() ? expected : 0)
          << p.name << " at " << i;
    }
  }
  EXPECT_FALSE(ParameterSlices().any());
  EXPECT_TRUE(ParameterSlices().divided().empty());
}

TEST(ParameterSlices, AreGatheredFromTheirRanks) {
  const Graph graph = lenet();
  for (const int count : {1, 2, 5}) {
    run_as_threads(count, [&](Communicator& ranks) {
      const ParameterSlices slices(graph, layers_to_split(graph, "fc2", count), count, ranks.rank());
      std::vector<float> flat(static_cast<std::size_t>(graph.flat_elements()), -1.0F);
      for (const Range& held : slices.held()) {
        for (std::int64_t i = held.begin; i < held.end; ++i) flat[static_cast<std::size_t>(i)] = static_cast<float>(i);
      }
      slices.gather(ranks, flat);
      for (const Parameter& p : graph.parameters()) {
        for (std::int64_t i = p.offset; i < p.offset + p.elements(); ++i) {
          ASSERT_EQ(flat[static_cast<std::size_t>(i)], p.name.starts_with("fc2.") ? static_cast<float>(i) : -1.0F);
        }
      }
    });
  }
}

// What a run of some steps gives on rank 0, and the gathered weights.
struct Outcome {
  std::vector<StepResult> steps;
  std::vector<float> parameters;
  std::uint64_t bytes_sent = 0;  // by all ranks
};

Outcome train(int ranks, const RigConfig& config, const std::vector<std::int64_t>& samples, double lr) {
  Outcome outcome;
  run_as_threads(ranks, [&](Communicator& communicator) {
    omp_set_num_threads(1);
    TrainingRig rig(communicator, config);
    std::int64_t first = 0;
    for (std::size_t s = 0; s < samples.size(); ++s) {
      const StepResult result = rig.run(static_cast<std::int64_t>(s) + 1, first, samples[s], lr);
      first += samples[s];
      if (communicator.rank() == 0) outcome.steps.push_back(result);
    }
    rig.slices.gather(communicator, rig.parameters);
    auto sent = static_cast<std::int64_t>(rig.exchange ? rig.exchange->bytes_sent() : 0);
    communicator.all_reduce(std::span(&sent, 1), ReduceOp::sum);
    if (communicator.rank() != 0) return;
    outcome.parameters = rig.parameters;
    outcome.bytes_sent = static_cast<std::uint64_t>(sent);
  });
  return outcome;
}

// Both compute the same sums in another order. A small loss is a difference of logits, whose rounding does not become smaller
// with it; nor does that of a small gradient.
void expect_same(const Outcome& divided, const Outcome& expected, const std::string& what) {
  ASSERT_EQ(divided.steps.size(), expected.steps.size());
  for (std::size_t s = 0; s < expected.steps.size(); ++s) {
    const StepResult& step = expected.steps[s];
    ASSERT_NEAR(divided.steps[s].loss, step.loss, 1e-5 * std::max(step.loss, 0.01)) << what << ", step " << s;
    ASSERT_NEAR(divided.steps[s].grad_norm, step.grad_norm, 1e-3 * std::max(step.grad_norm, 0.01))
        << what << ", step " << s;
    ASSERT_TRUE(divided.steps[s].finite);
  }
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, static_cast<double>(std::abs(a[i] - b[i])));
  return most;
}

TEST(SplitLinear, AHundredStepsHaveTheLossesOfDataParallelism) {
  RigConfig config{.global_batch = 64};
  config.optimizer = {.momentum = 0.9, .nesterov = true, .weight_decay = 5e-4};
  const std::vector<std::int64_t> samples(100, 64);
  const Outcome expected = train(2, config, samples, 0.02);
  for (const int ranks : {2, 4}) {
    config.split = ranks == 2 ? "fc*" : "fc1";
    expect_same(train(ranks, config, samples, 0.02), expected, std::to_string(ranks) + " ranks");
    if (HasFailure()) return;
  }
}

// With clipped norms and trust ratios, which are those of whole parameters.
TEST(SplitLinear, EveryOptimizerSeesTheNormsOfWholeParameters) {
  const std::vector<std::int64_t> samples(6, 64);
  for (const UpdateRule rule :
       {UpdateRule::sgd, UpdateRule::adam, UpdateRule::rmsprop, UpdateRule::lars, UpdateRule::lamb}) {
    RigConfig config{.global_batch = 64};
    // An epsilon that keeps rounding errors of tiny gradients small.
    config.optimizer = {.rule = rule, .weight_decay = 0.01, .epsilon = 1e-4, .clip_norm = 0.5, .average_decay = 0.9};
    const double lr = rule == UpdateRule::lars ? 1 : 0.01;
    const Outcome expected = train(2, config, samples, lr);
    const Outcome start = train(2, config, {}, lr);
    config.split = "fc*";
    const Outcome divided = train(2, config, samples, lr);
    const std::string what = "rule " + std::to_string(static_cast<int>(rule));
    expect_same(divided, expected, what);
    // Far below what training has changed.
    EXPECT_LT(distance(divided.parameters, expected.parameters), 1e-2 * distance(start.parameters, expected.parameters))
        << what;
  }
}

// Batches that do not divide evenly, one with fewer samples than ranks, several shards on each rank.
TEST(SplitLinear, UnevenShardsCountEachSampleOnce) {
  const std::vector<std::int64_t> samples = {62, 41, 3, 1, 62};
  for (const int shards : {4, 8}) {
    for (const Reduction algorithm : {Reduction::ring, Reduction::tree, Reduction::root}) {
      RigConfig config{.global_batch = 62, .shards = shards, .algorithm = algorithm};
      const Outcome expected = train(4, config, samples, 0.05);
      config.split = "fc1";
      expect_same(train(4, config, samples, 0.05), expected, std::to_string(shards) + " shards on 4 ranks");
      expect_same(train(2, config, samples, 0.05), expected, std::to_string(shards) + " shards on 2 ranks");
      if (HasFailure()) return;
    }
  }
  // Runs of shards that are no nodes of the fixed tree.
  RigConfig config{.global_batch = 62, .shards = 6, .algorithm = Reduction::tree};
  const Outcome expected = train(2, config, samples, 0.05);
  config.split = "fc1";
  expect_same(train(2, config, samples, 0.05), expected, "6 shards on 2 ranks");
}

TEST(SplitLinear, TheBytesThatAreSentAreThoseOfThePlan) {
  const Graph graph = lenet();
  for (const int ranks : {2, 4}) {
    RigConfig config{.global_batch = 64, .split = "fc1"};
    const Outcome outcome = train(ranks, config, {64, 64, 64}, 0.05);
    const std::vector<int> layers = layers_to_split(graph, "fc1", ranks);
    const LayerTraffic planned = layer_traffic(graph, layers, ranks, 64);
    EXPECT_NEAR(static_cast<double>(outcome.bytes_sent), 3 * ranks * planned.activations, 1e-6) << ranks;
    // Inputs and outputs, in both directions, of the samples that other ranks have: 800 and 128.
    const double others = (ranks - 1.0) / ranks;
    EXPECT_NEAR(planned.activations, others * 64 * 4 * (2 * 800 + 2 * 128.0 / ranks), 1e-6);
    EXPECT_NEAR(planned.gradients, 2 * others * 4 * (800 * 128 + 128), 1e-6);
  }
}

TEST(SplitLinear, ANonFiniteValueOfOneRankStopsAllBeforeTheUpdate) {
  run_as_threads(2, [&](Communicator& communicator) {
    omp_set_num_threads(1);
    TrainingRig rig(communicator, {.global_batch = 24, .split = "fc1"});
    const Range own = rig.slices.held()[0];
    if (communicator.rank() == 1) {
      rig.parameters[static_cast<std::size_t>(own.begin)] = std::numeric_limits<float>::quiet_NaN();
    }
    const std::vector<float> before = rig.parameters;
    EXPECT_FALSE(rig.run(1, 0, 24, 0.1).finite);
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (!std::isfinite(before[i])) continue;
      ASSERT_EQ(rig.parameters[i], before[i]);
    }
  });
}

// The advice for a large layer and a small batch, and the reverse.
TEST(SplitLinear, TheAdviceComparesWhatIsSent) {
  const Graph graph = lenet();
  EXPECT_EQ(
      split_advice(graph, 2, 16),
      "2 ranks, global batch 16: --split-linear fc1 is cheaper; a rank sends 54.0 KiB of activations per step instead "
      "of 400.5 KiB of gradients");
  EXPECT_EQ(
      split_advice(graph, 4, 100000).find("4 ranks, global batch 100000: data parallel is cheaper for all linear "),
      0U);
  Graph convolutions({1, 8, 8});
  convolutions.flatten(convolutions.conv("conv", convolutions.input(), {.channels = 3, .window = square(8)}));
  EXPECT_EQ(split_advice(convolutions, 2, 64), "2 ranks, global batch 64: no linear layer to divide");
}

}  // namespace
}  // namespace ddp::split_linear_tests
