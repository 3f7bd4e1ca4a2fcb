#include "model/joins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <ostream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "model/initialize.h"
#include "model/network.h"
#include "model/zoo.h"

namespace ddp {
namespace {

constexpr std::int64_t kSide = 17;

// Two depthwise convolutions, of strides 1 and 2, each between normalisations that only it and the next layer read.
Graph depthwise_graph() {
  Graph graph({3, kSide, kSide});
  const auto block = [&](int x, const std::string& name, int stride, Activation before, Activation after) {
    x = graph.conv(name + ".wide", x, {.channels = 24, .bias = false});
    x = graph.batch_norm(name + ".first", x, {});
    if (before != Activation::none) x = graph.activation(x, before);
    x = graph.conv(name + ".depthwise", x,
                   {.channels = 24, .window = square(3, stride, 1), .groups = 24, .bias = false});
    x = graph.batch_norm(name + ".second", x, {});
    if (after != Activation::none) x = graph.activation(x, after);
    return graph.conv(name + ".narrow", x, {.channels = 5, .bias = false});
  };
  int x = block(graph.input(), "one", 1, Activation::relu6, Activation::relu6);
  x = block(x, "two", 2, Activation::relu, Activation::none);
  graph.linear("fc", graph.flatten(x), 10);
  return graph;
}

struct JoinCase {
  const char* name;
  Graph (*graph)();
  Precision precision;
};
void PrintTo(const JoinCase& which, std::ostream* out) { *out << which.name; }

struct Batch {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;

  explicit Batch(std::int64_t samples) {
    std::mt19937_64 engine{std::random_device{}()};
    for (std::int64_t i = 0; i < samples * 3 * kSide * kSide; ++i)
      pixels.push_back(static_cast<std::uint8_t>(engine()));
    for (std::int64_t i = 0; i < samples; ++i) labels.push_back(static_cast<std::int32_t>(engine() % 10));
  }
};

struct JoinOutcome {
  double loss = 0;
  double evaluated = 0;
  std::vector<float> gradient, statistics;
};

class Joins : public testing::TestWithParam<JoinCase> {
 protected:
  Joins() : backend(make_cpu_backend(GetParam().precision)), graph(GetParam().graph()) {
    for (const Stage& stage : make_stages(graph, 40)) {
      const Layout lanes = Layout::lanes16;
      kernels.push_back(backend->chooser().choose(stage.spec, lanes, lanes, ChoiceMode::fixed).kernels);
    }
    parameters.resize(static_cast<std::size_t>(graph.flat_elements()));
    initialize(graph, std::nullopt, std::random_device{}(), parameters);
    // Weights and biases of normalisations are 1 and 0 at first, so that errors in them would not show.
    std::mt19937_64 engine{std::random_device{}()};
    for (float& value : parameters) value += std::uniform_real_distribution<float>(-0.1F, 0.1F)(engine);
  }

  // All stages in lanes16.
  Network network(std::int64_t batch, bool join) const {
    LayoutPlan plan;
    const std::vector<Stage> stages = make_stages(graph, batch);
    for (std::size_t s = 0; s < stages.size(); ++s) {
      plan.stages.push_back({stages[s].name, Layout::lanes16, kernels[s]});
    }
    const NetworkConfig config{.batch = batch,
                               .image = {3, kSide, kSide},
                               .scale = {1 / 128.0F, 1 / 128.0F, 1 / 128.0F},
                               .shift = {-1, -1, -1},
                               .join = join};
    return {*backend, graph, config, plan};
  }

  JoinOutcome run(Network& network, const Batch& batch, std::int64_t count) const {
    JoinOutcome outcome;
    outcome.gradient.resize(parameters.size());
    outcome.statistics.resize(static_cast<std::size_t>(graph.statistic_count()), 1.0F);
    const ModelState state{parameters.data(), outcome.statistics.data()};
    const Samples samples{batch.pixels.data(), nullptr, batch.labels.data(), count};
    double correct = 0;
    network.forward(Pass::training, state, samples, {&outcome.loss, &correct, 1.0F / static_cast<float>(count)});
    std::int64_t last = graph.flat_elements();
    network.backward(parameters.data(), outcome.gradient.data(), [&](std::int64_t offset) {
      EXPECT_LT(offset, last);
      last = offset;
    });
    EXPECT_EQ(last, 0);
    network.forward(Pass::evaluation, state, samples, {&outcome.evaluated, &correct, 1.0F});
    return outcome;
  }

  std::unique_ptr<Backend> backend;
  Graph graph;
  // Whether the backend has the joined operator; the graph has two places for it.
  bool joins() const { return joined_stages(backend->ops(), make_stages(graph, 40), 1, Layout::lanes16) > 1; }

  std::vector<float> parameters;
  std::vector<std::string> kernels;  // of the stages
};

std::int64_t joined_in(const Network& network) {
  std::int64_t count = 0;
  std::istringstream lines(network.describe());
  for (std::string line; std::getline(lines, line);) count += line.ends_with(" joined") ? 1 : 0;
  return count;
}

// A joined operator gives the bits of the separate ones, also of batches that fill neither a block nor a shard.
TEST_P(Joins, TheBitsAreThoseOfSeparateOperators) {
  for (const std::int64_t count : {1, 15, 16, 33, 40}) {
    SCOPED_TRACE(count);
    const Batch batch(count);
    Network separate = network(40, false);
    Network joined = network(40, true);
    EXPECT_EQ(joined_in(separate), 0);
    EXPECT_TRUE(joins() || GetParam().precision == Precision::bf16);
    EXPECT_EQ(joined_in(joined), joins() ? 2 : 0);
    const JoinOutcome expected = run(separate, batch, count);
    const JoinOutcome actual = run(joined, batch, count);
    EXPECT_EQ(actual.loss, expected.loss);
    EXPECT_EQ(actual.evaluated, expected.evaluated);
    EXPECT_EQ(actual.statistics, expected.statistics);
    EXPECT_EQ(actual.gradient, expected.gradient);
  }
}

TEST_P(Joins, LessMemoryIsPlanned) {
  const Network joined = network(512, true);
  if (joined_in(joined) == 0) GTEST_SKIP() << "without instructions for bf16, kernels for floats are not joined";
  EXPECT_LT(joined.memory().arena_bytes, network(512, false).memory().arena_bytes);
}

INSTANTIATE_TEST_SUITE_P(Graphs, Joins,
                         testing::Values(JoinCase{"Depthwise", depthwise_graph, Precision::fp32},
                                         JoinCase{"DepthwiseBf16", depthwise_graph, Precision::bf16}),
                         [](const auto& which) { return which.param.name; });

// The plan joins stages where that is faster, and its text says where it is not.
TEST(JoinedStages, AreJoinedWhereThatIsFaster) {
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  const Graph graph = depthwise_graph();
  const std::vector<Stage> stages = make_stages(graph, 16);
  const std::vector<KernelQuery> queries = kernel_queries(backend->ops(), stages);
  for (const double seconds : {2.9, 3.1}) {
    std::vector<KernelChoice> answers;
    for (const KernelQuery& query : queries) {
      const bool liked = query.from == Layout::lanes16 && query.to == Layout::lanes16;
      const std::string kernels =
          liked ? backend->chooser().choose(query.spec, query.from, query.to, ChoiceMode::fixed).kernels : "";
      answers.push_back({kernels, !query.rest.empty() ? seconds : liked ? 1.0 : 100.0});
    }
    const std::string text = to_text(plan_layouts(backend->ops(), stages, queries, answers));
    const LayoutPlan plan = layout_plan_from_text(text, stages);
    EXPECT_EQ(to_text(plan), text);
    EXPECT_EQ(plan.stages[1].separate, seconds > 3) << text;
    EXPECT_FALSE(plan.stages[0].separate) << text;
    const NetworkConfig config{.batch = 16,
                               .image = {3, kSide, kSide},
                               .scale = {1 / 128.0F, 1 / 128.0F, 1 / 128.0F},
                               .shift = {-1, -1, -1},
                               .plan_only = true};
    EXPECT_EQ(joined_in(Network(*backend, graph, config, plan)), seconds > 3 ? 0 : 2) << text;
  }
}

// Depthwise convolutions and their normalisations, and no others.
TEST(JoinedStages, AreThoseWithAnExpectedGainOnACpu) {
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  const auto joined = [&](const Graph& graph, const Shape& image, ChoiceMode mode) {
    const std::vector<Stage> stages = make_stages(graph, 16);
    const std::vector<float> ones(static_cast<std::size_t>(image.channels), 1.0F);
    const NetworkConfig config{.batch = 16, .image = image, .scale = ones, .shift = ones, .plan_only = true};
    return joined_in(Network(*backend, graph, config, plan_layouts(*backend, stages, mode)));
  };
  for (const ChoiceMode mode : {ChoiceMode::fixed, ChoiceMode::expected}) {
    EXPECT_EQ(joined(make_model("resnet18-d2l", {1, 28, 28}, 10), {1, 28, 28}, mode), 0);
    EXPECT_EQ(joined(depthwise_graph(), {3, kSide, kSide}, mode), 2);
  }
}

// What another layer reads, or what another bias or layout needs, stays separate.
TEST(JoinedStages, OnlyWhatNothingElseReads) {
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  const std::vector<Stage> stages = make_stages(depthwise_graph(), 16);
  EXPECT_EQ(joined_stages(backend->ops(), stages, 1, Layout::lanes16), 3U);
  EXPECT_EQ(joined_stages(backend->ops(), stages, 1, Layout::nhwc), 1U);
  EXPECT_EQ(joined_stages(backend->ops(), stages, 0, Layout::lanes16), 1U);
  EXPECT_EQ(joined_stages(backend->ops(), stages, 2, Layout::lanes16), 1U);

  // No gradient is computed for a normalisation in front whose parameters, and those before it, are frozen.
  Graph frozen = depthwise_graph();
  for (int parameter = 0; parameter < 3; ++parameter) frozen.freeze(parameter);
  EXPECT_EQ(joined_stages(backend->ops(), make_stages(frozen, 16), 1, Layout::lanes16), 1U);

  Graph graph({3, kSide, kSide});
  int x = graph.batch_norm("first", graph.conv("wide", graph.input(), {.channels = 8, .bias = false}), {});
  const int y = graph.conv("depthwise", x, {.channels = 8, .window = square(3, 1, 1), .groups = 8, .bias = false});
  x = graph.add(graph.batch_norm("second", y, {}), x);
  graph.linear("fc", graph.flatten(x), 10);
  EXPECT_EQ(joined_stages(backend->ops(), make_stages(graph, 16), 1, Layout::lanes16), 1U);
}

}  // namespace
}  // namespace ddp
