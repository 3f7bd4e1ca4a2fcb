// Backward ends at the first parameter that is trained.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "model/initialize.h"
#include "model/layout_plan.h"
#include "model/network.h"
#include "model/zoo.h"
#include "unit/model/fixed_plan.h"

namespace ddp {
namespace {

constexpr std::int64_t kSamples = 7;
constexpr float kUntouched = 7.5F;

// Two blocks with a sum, and a classifier.
Graph residual_graph() {
  Graph graph({3, 12, 12});
  int x = graph.conv("conv1", graph.input(), {.channels = 8, .window = square(3, 1, 1)});
  x = graph.average_pool(graph.relu(graph.batch_norm("bn1", x)), 2);
  const int y = graph.batch_norm("bn2", graph.conv("conv2", x, {.channels = 8, .window = square(3, 1, 1)}));
  x = graph.prelu("act", graph.relu(graph.add(y, x)));
  graph.linear("fc", graph.flatten(graph.global_average_pool(x)), 4);
  return graph;
}

void freeze(Graph& graph, const std::vector<std::string>& names) {
  for (std::size_t p = 0; p < graph.parameters().size(); ++p) {
    const std::string& name = graph.parameters()[p].name;
    const bool frozen = std::any_of(names.begin(), names.end(), [&](const auto& n) { return name.starts_with(n); });
    if (frozen) graph.freeze(p);
  }
}

LayoutPlan plan_in(Backend& backend, const std::vector<Stage>& stages, Layout preferred) {
  return fixed_plan(backend, stages, [&](const OpSpec& spec) {
    return backend.ops().supports(spec, preferred, preferred) ? preferred : Layout::plain;
  });
}

struct Passed {
  double loss = 0;
  std::vector<float> gradient;
  std::vector<float> statistics;
  std::size_t arena = 0;
  std::vector<std::int64_t> ready;
};

Passed pass(Backend& backend, const Graph& graph, Layout layout, bool forward_only = false) {
  const Shape image = graph.shape(graph.input());
  const auto images = static_cast<std::size_t>(kSamples * image.elements());
  std::mt19937 engine{11};
  std::vector<std::uint8_t> pixels(images);
  for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(engine());
  std::vector<std::int32_t> labels(kSamples);
  for (std::int32_t& label : labels) label = static_cast<std::int32_t>(engine() % 4);
  std::vector<std::uint64_t> keys(kSamples, 5);
  std::vector<float> parameters(static_cast<std::size_t>(graph.flat_elements()));
  initialize(graph, std::nullopt, 3, parameters);
  Passed passed;
  passed.statistics.resize(static_cast<std::size_t>(graph.statistic_count()));
  initialize_statistics(graph, passed.statistics);
  passed.gradient.assign(parameters.size(), kUntouched);
  const auto channels = static_cast<std::size_t>(image.channels);
  const NetworkConfig config{.batch = kSamples,
                             .image = image,
                             .scale = std::vector<float>(channels, 1.0F / 255),
                             .shift = std::vector<float>(channels, 0.0F),
                             .forward_only = forward_only};
  Network network(backend, graph, config, plan_in(backend, make_stages(graph, kSamples), layout));
  double correct = 0;
  network.forward(Pass::training, {parameters.data(), passed.statistics.data()},
                  {pixels.data(), nullptr, labels.data(), kSamples, keys.data()}, {&passed.loss, &correct, 1.0F});
  if (!forward_only) {
    network.backward(parameters.data(), passed.gradient.data(),
                     [&](std::int64_t offset) { passed.ready.push_back(offset); });
  }
  passed.arena = network.memory().arena_bytes;
  return passed;
}

// `behind`: frozen parameters with a trained one before them.
void compare(const Graph& whole, const std::vector<std::string>& before, const std::vector<std::string>& behind) {
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  Graph graph = whole;
  freeze(graph, before);
  freeze(graph, behind);
  for (const Layout layout : {Layout::lanes16, Layout::nhwc}) {
    const Passed expected = pass(*backend, whole, layout);
    const Passed found = pass(*backend, graph, layout);
    EXPECT_EQ(found.loss, expected.loss);
    EXPECT_EQ(found.statistics, expected.statistics);
    EXPECT_EQ(found.ready.back(), 0);
    EXPECT_LT(found.arena, expected.arena);
    const auto starts = [](const std::vector<std::string>& names, const Parameter& p) {
      return std::any_of(names.begin(), names.end(), [&](const auto& n) { return p.name.starts_with(n); });
    };
    for (const Parameter& p : graph.parameters()) {
      for (std::int64_t i = p.offset; i < p.offset + p.elements(); ++i) {
        const auto place = static_cast<std::size_t>(i);
        const float wanted = starts(before, p) ? kUntouched : starts(behind, p) ? 0 : expected.gradient[place];
        ASSERT_EQ(found.gradient[place], wanted) << p.name << " " << to_string(layout);
      }
    }
  }
}

TEST(Frozen, WhatLiesBeforeTheFirstTrainedLayerIsNotComputed) {
  compare(residual_graph(), {"conv1", "bn1"}, {});
  compare(residual_graph(), {"conv1", "bn1", "conv2", "bn2", "act"}, {});
}

TEST(Frozen, FrozenParametersBehindTrainedOnesHaveZeroGradients) {
  compare(residual_graph(), {"conv1", "bn1"}, {"bn2.weight", "act", "fc.bias"});
}

TEST(Frozen, TheLastLayerAlwaysHasAGradient) {
  compare(residual_graph(), {"conv1", "bn1", "conv2", "bn2", "act"}, {"fc"});
}

// Joined operators, squeeze and excitation, products with several readers.
TEST(Frozen, TheTailOfAMobileNetIsTrained) {
  const Graph graph = make_model("mobilenet-v3-small", {3, 32, 32}, 4);
  std::vector<std::string> before;
  for (int block = 0; block < 7; ++block) before.push_back("features." + std::to_string(block) + ".");
  compare(graph, before, {});
}

TEST(Frozen, ANetworkForForwardPassesOnlyHasTheLossInLessMemory) {
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  for (const Graph& graph : {residual_graph(), make_model("mobilenet-v3-small", {3, 32, 32}, 4)}) {
    for (const Layout layout : {Layout::lanes16, Layout::nhwc}) {
      const Passed expected = pass(*backend, graph, layout);
      const Passed found = pass(*backend, graph, layout, /*forward_only=*/true);
      EXPECT_EQ(found.loss, expected.loss);
      EXPECT_EQ(found.statistics, expected.statistics);
      EXPECT_LT(found.arena, expected.arena);
    }
  }
}

// The normalisations before and behind one that keeps its statistics measure theirs.
TEST(Frozen, StatisticsThatAreKeptDoNotChange) {
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  Graph graph = residual_graph();
  std::vector<float> initial(static_cast<std::size_t>(graph.statistic_count()));
  initialize_statistics(graph, initial);
  for (const Statistic& s : graph.statistics()) {
    if (s.name == "bn2.running_mean") graph.freeze_statistics(s.layer);
  }
  for (const Layout layout : {Layout::lanes16, Layout::nhwc}) {
    const Passed found = pass(*backend, graph, layout);
    for (const Statistic& s : graph.statistics()) {
      const auto begin = static_cast<std::ptrdiff_t>(s.offset);
      const bool same = std::equal(found.statistics.begin() + begin,
                                   found.statistics.begin() + begin + static_cast<std::ptrdiff_t>(s.channels),
                                   initial.begin() + begin);
      EXPECT_EQ(same, s.name.starts_with("bn2")) << s.name << " " << to_string(layout);
    }
  }
}

// With all statistics kept, joined operators would measure them all the same.
TEST(Frozen, NormsThatKeepTheirStatisticsAreNotJoined) {
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  Graph graph = make_model("mobilenet-v2", {3, 32, 32}, 4);
  for (const Statistic& s : graph.statistics()) graph.freeze_statistics(s.layer);
  std::vector<float> initial(static_cast<std::size_t>(graph.statistic_count()));
  initialize_statistics(graph, initial);
  for (const Layout layout : {Layout::lanes16, Layout::nhwc}) {
    EXPECT_EQ(pass(*backend, graph, layout).statistics, initial) << to_string(layout);
  }
}

TEST(Frozen, WithoutFrozenParametersNothingChanges) {
  const std::vector<Stage> stages = make_stages(residual_graph(), 2);
  EXPECT_TRUE(std::all_of(stages.begin(), stages.end(), [](const Stage& stage) { return stage.backward; }));
}

}  // namespace
}  // namespace ddp
