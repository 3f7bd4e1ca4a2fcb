#include "model/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "model/initialize.h"
#include "model/zoo.h"
#include "unit/model/fixed_plan.h"

namespace ddp {
namespace {

struct Problem {
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;

  explicit Problem(std::int64_t samples) {
    std::mt19937_64 engine{std::random_device{}()};
    for (std::int64_t i = 0; i < samples * 784; ++i) pixels.push_back(static_cast<std::uint8_t>(engine()));
    for (std::int64_t i = 0; i < samples; ++i) labels.push_back(static_cast<std::int32_t>(engine() % 10));
  }
};

NetworkConfig config_for(std::int64_t batch) { return {batch, {1, 28, 28}, {1.0F / 255.0F}, {0.0F}, 0.0F}; }

// All stages in one layout, with reorders where a stage does not support it.
LayoutPlan uniform_plan(Backend& backend, const std::vector<Stage>& stages, Layout conv, Layout linear) {
  return fixed_plan(backend, stages,
                    [&](const OpSpec& spec) { return std::holds_alternative<LinearSpec>(spec) ? linear : conv; });
}

struct Outcome {
  double loss = 0;
  std::vector<float> gradient;
};

Outcome run(Network& network, const std::vector<float>& parameters, const Problem& problem, std::int64_t count) {
  Outcome outcome;
  outcome.gradient.resize(parameters.size());
  double correct = 0;
  network.forward(Pass::training, {parameters.data()}, {problem.pixels.data(), nullptr, problem.labels.data(), count},
                  {&outcome.loss, &correct, 1.0F});
  std::int64_t last = static_cast<std::int64_t>(parameters.size());
  network.backward(parameters.data(), outcome.gradient.data(), [&](std::int64_t offset) {
    EXPECT_LT(offset, last);
    last = offset;
  });
  EXPECT_EQ(last, 0);
  return outcome;
}

class LeNet : public testing::Test {
 protected:
  LeNet() : backend(make_cpu_backend()), graph(make_model("lenet", {1, 28, 28}, 10)) {
    parameters.resize(static_cast<std::size_t>(graph.flat_elements()));
    initialize(graph, std::nullopt, std::random_device{}(), parameters);
  }

  std::unique_ptr<Backend> backend;
  Graph graph;
  std::vector<float> parameters;
};

std::vector<float> moved_along(std::vector<float> point, const std::vector<float>& direction, double distance) {
  for (std::size_t i = 0; i < point.size(); ++i) {
    point[i] += static_cast<float>(distance * static_cast<double>(direction[i]));
  }
  return point;
}

double norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

// All combinations of layouts compute the same, up to the rounding of fp32 sums.
TEST_F(LeNet, AllLayoutsAgree) {
  const Problem problem(37);
  const std::vector<Stage> stages = make_stages(graph, 37);
  Network reference(*backend, graph, config_for(37), uniform_plan(*backend, stages, Layout::nhwc, Layout::plain));
  const Outcome expected = run(reference, parameters, problem, 37);
  for (const auto& [conv, linear] : {std::pair(Layout::lanes16, Layout::lanes16),
                                     {Layout::lanes16, Layout::plain},
                                     {Layout::nhwc, Layout::lanes16}}) {
    Network network(*backend, graph, config_for(37), uniform_plan(*backend, stages, conv, linear));
    const Outcome actual = run(network, parameters, problem, 37);
    EXPECT_NEAR(actual.loss, expected.loss, 1e-5 * expected.loss);
    std::vector<float> difference(actual.gradient);
    for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= expected.gradient[i];
    EXPECT_LT(norm(difference), 1e-5 * norm(expected.gradient)) << to_string(conv) << " " << to_string(linear);
  }
}

// A partial shard gives the result of a network of exactly that size, bit-identical for kernels of our own.
TEST_F(LeNet, AShardThatIsNotFullChangesNothing) {
  const Problem problem(64);
  const LayoutPlan plan = uniform_plan(*backend, make_stages(graph, 64), Layout::lanes16, Layout::lanes16);
  Network large(*backend, graph, config_for(64), plan);
  (void)run(large, parameters, problem, 64);  // leaves other samples in the activations
  for (const std::int64_t count : {1, 15, 16, 17, 40}) {
    Network small(*backend, graph, config_for(count), plan);
    const Outcome expected = run(small, parameters, problem, count);
    const Outcome actual = run(large, parameters, problem, count);
    EXPECT_EQ(actual.loss, expected.loss);
    EXPECT_EQ(actual.gradient, expected.gradient);
  }
}

// The directional derivative of the loss along the gradient is the squared norm of the gradient.
TEST_F(LeNet, TheGradientPredictsTheLoss) {
  const Problem problem(32);
  Network network(*backend, graph, config_for(32),
                  uniform_plan(*backend, make_stages(graph, 32), Layout::lanes16, Layout::lanes16));
  const Outcome here = run(network, parameters, problem, 32);
  const double slope = norm(here.gradient) * norm(here.gradient);
  // The step balances rounding and kinks of ReLU: the error stayed below 0.4% in 80 random problems; with 100 times the
  // step, kinks alone caused up to 7%.
  const double step = 1e-5 * here.loss / slope;
  const auto loss_at = [&](double distance) {
    return run(network, moved_along(parameters, here.gradient, distance), problem, 32).loss;
  };
  // Second-order errors cancel in a central difference.
  EXPECT_NEAR((loss_at(step) - loss_at(-step)) / (2 * step), slope, 0.02 * slope);
}

TEST_F(LeNet, MemoryIsSharedByLiveness) {
  Network network(*backend, graph, config_for(64),
                  uniform_plan(*backend, make_stages(graph, 64), Layout::lanes16, Layout::lanes16));
  std::size_t separate = 0;
  for (const PlannedBuffer& buffer : network.memory().buffers) separate += buffer.bytes;
  EXPECT_LT(network.memory().arena_bytes, separate);
}

// Elementwise operators overwrite inputs that nothing else reads: a tanh the convolution before it; dropout and sigmoid
// likewise. But dropout must not overwrite an input of the sum, nor the sum what the backward pass of sigmoid reads.
TEST(Network, ElementwiseOperatorsWorkInPlace) {
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  Graph graph({1, 28, 28});
  int x = graph.conv("conv1", graph.input(), {.channels = 4, .window = square(5, 4)});
  x = graph.activation(x, Activation::tanh);
  int y = graph.dropout(graph.conv("conv2", graph.dropout(x, 0.25F), {.channels = 4, .window = square(3, 1, 1)}), 0.5F);
  y = graph.activation(y, Activation::sigmoid);
  graph.linear("fc", graph.flatten(graph.add(y, x)), 10);
  std::vector<float> parameters(static_cast<std::size_t>(graph.flat_elements()));
  initialize(graph, std::nullopt, std::random_device{}(), parameters);
  const Problem problem(32);
  std::vector<std::uint64_t> keys(32);
  std::iota(keys.begin(), keys.end(), std::random_device{}());

  for (const Layout conv : {Layout::lanes16, Layout::nhwc}) {
    SCOPED_TRACE(to_string(conv));
    Network network(*backend, graph, config_for(32),
                    uniform_plan(*backend, make_stages(graph, 32), conv, Layout::plain));
    std::vector<std::string> names;
    for (const PlannedBuffer& buffer : network.memory().buffers) {
      if (buffer.name.ends_with(".y") || buffer.name.ends_with(".dy")) names.push_back(buffer.name);
    }
    std::erase_if(names, [](const std::string& name) { return name.starts_with("reorder"); });
    EXPECT_THAT(names, testing::ElementsAre("conv1.y", "conv1.dy", "dropout.y", "dropout.dy", "conv2.y", "conv2.dy",
                                            "add.y", "fc.y", "fc.dy"));

    const auto run_at = [&](const std::vector<float>& weights) {
      Outcome outcome;
      outcome.gradient.resize(weights.size());
      double correct = 0;
      network.forward(Pass::training, {weights.data()},
                      {problem.pixels.data(), nullptr, problem.labels.data(), 32, keys.data()},
                      {&outcome.loss, &correct, 1.0F});
      network.backward(weights.data(), outcome.gradient.data(), [](std::int64_t /*offset*/) {});
      return outcome;
    };
    // Without kinks, a small step has only the rounding errors of fp32.
    const Outcome here = run_at(parameters);
    const double slope = norm(here.gradient) * norm(here.gradient);
    const double step = 1e-3 * here.loss / slope;
    const auto loss_at = [&](double distance) { return run_at(moved_along(parameters, here.gradient, distance)).loss; };
    EXPECT_NEAR((loss_at(step) - loss_at(-step)) / (2 * step), slope, 2e-3 * slope);
  }
}

// Logits in nhwc, the only layout of a transposed convolution, are reordered. With a window of one pixel it is a convolution
// with the transposed weight.
TEST(Network, LogitsMayComeFromAnOperatorWithoutAVectorLayout) {
  constexpr std::int64_t kChannels = 5;
  constexpr std::int64_t kBatch = 19;
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  const auto build = [](bool transposed) {
    Graph graph({1, 28, 28});
    const int x = graph.conv("conv", graph.input(), {.channels = kChannels, .window = square(7, 7)});
    graph.flatten(transposed ? graph.conv_transpose("last", x, {.channels = kChannels, .window = square(1)})
                             : graph.conv("last", x, {.channels = kChannels, .window = square(1)}));
    return graph;
  };
  const Graph graph = build(true);
  const auto weight = std::find_if(graph.parameters().begin(), graph.parameters().end(),
                                   [](const Parameter& p) { return p.name == "last.weight"; });
  ASSERT_NE(weight, graph.parameters().end());
  const auto with_transposed_weight = [&](std::vector<float> flat) {
    for (std::int64_t i = 0; i < kChannels; ++i) {
      for (std::int64_t j = 0; j < i; ++j) {
        std::swap(flat[static_cast<std::size_t>(weight->offset + i * kChannels + j)],
                  flat[static_cast<std::size_t>(weight->offset + j * kChannels + i)]);
      }
    }
    return flat;
  };
  std::vector<float> parameters(static_cast<std::size_t>(graph.flat_elements()));
  initialize(graph, std::nullopt, std::random_device{}(), parameters);
  const Problem problem(kBatch);
  const auto outcome_of = [&](const Graph& of, const std::vector<float>& weights) {
    const LayoutPlan plan = plan_layouts(*backend, make_stages(of, kBatch), ChoiceMode::fixed);
    Network network(*backend, of, config_for(kBatch), plan);
    EXPECT_TRUE(is_vector_layout(network.logits_layout()));
    return run(network, weights, problem, kBatch);
  };
  const Outcome actual = outcome_of(graph, parameters);
  const Outcome expected = outcome_of(build(false), with_transposed_weight(parameters));
  EXPECT_NEAR(actual.loss, expected.loss, 1e-5 * expected.loss);
  std::vector<float> difference = with_transposed_weight(actual.gradient);
  for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= expected.gradient[i];
  EXPECT_LT(norm(difference), 1e-5 * norm(expected.gradient));
}

}  // namespace
}  // namespace ddp
