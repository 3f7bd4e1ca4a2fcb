// Compares a whole network on the stand-in GPU with the CPU: backend-specific transformations of the model must not
// change results.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "model/initialize.h"
#include "model/network.h"
#include "model/zoo.h"
#include "stand_ins/cuda/runtime.h"

namespace ddp {
namespace {

constexpr std::int64_t kBatch = 12;
constexpr std::int64_t kActive = 11;
constexpr Shape kImage{3, 8, 8};

// With biases before batch normalisation, and values that two, three and four stages read.
Graph make_graph() {
  Graph graph(kImage);
  const int stem = graph.relu(graph.batch_norm("norm1", graph.conv("conv1", graph.input(), {.channels = 8})));
  int x = graph.relu(graph.batch_norm("norm2", graph.conv("conv2", stem, {.channels = 8, .window = square(3, 1, 1)})));
  x = graph.batch_norm("norm3", graph.conv("conv3", x, {.channels = 8, .window = square(3, 1, 1)}));
  const int block = graph.relu(graph.add(x, stem));
  const int twice = graph.conv("conv4", block, {.channels = 16, .window = square(3, 2, 1)});
  const int shortcut = graph.conv("conv5", block, {.channels = 16, .window = square(1, 2)});
  x = graph.relu(graph.add(graph.batch_norm("norm4", twice), shortcut));
  x = graph.add(x, twice);
  x = graph.batch_norm("norm5", graph.linear("fc1", graph.flatten(x), 6));
  graph.linear("fc2", x, 4);
  return graph;
}

// With 1x1 convolutions that are one operator with the batch normalisations around them, and sums behind those.
Graph make_bottlenecks() {
  Graph graph(kImage);
  const auto block = [&](const std::string& name, int input, int stride, int shortcut) {
    int x = graph.conv(name + ".conv1", input, {.channels = 64, .bias = false});
    x = graph.relu(graph.batch_norm(name + ".norm1", x));
    x = graph.conv(name + ".conv2", x, {.channels = 64, .window = square(3, stride, 1), .bias = false});
    x = graph.relu(graph.batch_norm(name + ".norm2", x));
    x = graph.batch_norm(name + ".norm3", graph.conv(name + ".conv3", x, {.channels = 128, .bias = false}));
    return graph.relu(graph.add(x, shortcut));
  };
  const auto shortcut = [&](const std::string& name, int input, int stride) {
    return graph.batch_norm(name + ".norm",
                            graph.conv(name, input, {.channels = 128, .window = square(1, stride), .bias = false}));
  };
  int x = graph.relu(graph.batch_norm("norm", graph.conv("stem", graph.input(), {.channels = 64, .bias = false})));
  x = block("one", x, 2, shortcut("one.shortcut", x, 2));
  x = block("two", x, 1, x);
  graph.linear("fc", graph.flatten(x), 4);
  return graph;
}

struct Problem {
  Graph graph;
  std::vector<float> parameters = std::vector<float>(static_cast<std::size_t>(graph.flat_elements()));
  std::vector<float> statistics = std::vector<float>(static_cast<std::size_t>(graph.statistic_count()));
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;

  explicit Problem(Graph layers) : graph(std::move(layers)) {
    std::mt19937_64 engine{std::random_device{}()};
    initialize(graph, std::nullopt, engine(), parameters);
    std::uniform_real_distribution<float> uniform(-1, 1);
    // Nonzero biases, so that omitting one changes the result.
    for (const Parameter& p : graph.parameters()) {
      if (!p.name.ends_with("bias")) continue;
      for (std::int64_t i = 0; i < p.elements(); ++i)
        parameters[static_cast<std::size_t>(p.offset + i)] = uniform(engine);
    }
    for (const Statistic& s : graph.statistics()) std::fill_n(statistics.begin() + s.offset, s.channels, s.initial);
    for (std::int64_t i = 0; i < kActive * image().elements(); ++i) {
      pixels.push_back(static_cast<std::uint8_t>(engine()));
    }
    for (std::int64_t i = 0; i < kActive; ++i) labels.push_back(static_cast<std::int32_t>(engine() % 4));
  }

  const Shape& image() const { return graph.layers().front().output; }
};

struct Outcome {
  std::int64_t joined = 0;  // operators of several stages
  double loss = 0;
  double loss_in_evaluation = 0;
  std::size_t kernels = 0;  // of the training pass
  std::vector<float> gradient, statistics;
};

std::size_t started() {
  return testing::enqueued("kernel") + testing::enqueued("convolution") + testing::enqueued("product");
}

std::vector<Stage> stages_of(Backend& backend, const Problem& problem) {
  return make_stages(problem.graph, kBatch, backend.ops().traits().takes_bias_into_norm);
}

Outcome run(Backend& backend, const Problem& problem, const LayoutPlan& plan) {
  const std::vector<float> scale(problem.image().channels, 1.0F / 128.0F);
  const std::vector<float> shift(problem.image().channels, -1.0F);
  Network network(backend, problem.graph, {kBatch, problem.image(), scale, shift}, plan);
  const auto device = [&](const auto& host) {
    const std::size_t bytes = host.size() * sizeof(host[0]);
    Memory memory = backend.memory().allocate(bytes, "the test values");
    backend.queue().upload(memory.data(), host.data(), bytes);
    backend.queue().synchronize();  // `host` may be a temporary
    return memory;
  };
  const auto host = [&](const Memory& memory, auto& values) {
    backend.queue().download(values.data(), memory.data(), values.size() * sizeof(values[0]));
  };
  const Memory parameters = device(problem.parameters);
  const Memory statistics = device(problem.statistics);
  const Memory pixels = device(problem.pixels);
  const Memory labels = device(problem.labels);
  // NaNs reveal parameters without a gradient; the padding between parameters must stay zero.
  std::vector<float> nothing(problem.parameters.size());
  for (const Parameter& p : problem.graph.parameters()) std::fill_n(nothing.begin() + p.offset, p.elements(), NAN);
  const Memory gradient = device(nothing);
  const Memory numbers = device(std::vector<double>(3));
  const Samples samples{.pixels = pixels.at<std::uint8_t>(0), .labels = labels.at<std::int32_t>(0), .count = kActive};
  const ModelState state{parameters.at<float>(0), statistics.at<float>(0)};
  auto* sums = numbers.at<double>(0);
  const std::size_t before = started();
  network.forward(Pass::training, state, samples, {sums, sums + 1, 1.0F / kActive});
  network.backward(state.parameters, gradient.at<float>(0), [](std::int64_t) {});
  const std::size_t kernels = started() - before;
  network.forward(Pass::evaluation, state, samples, {sums + 2, sums + 1, 1.0F / kActive});
  Outcome outcome;
  outcome.kernels = kernels;
  const std::string steps = network.describe();
  for (auto at = steps.find(" joined"); at != std::string::npos; at = steps.find(" joined", at + 1)) ++outcome.joined;
  outcome.gradient.resize(problem.parameters.size());
  outcome.statistics.resize(problem.statistics.size());
  std::vector<double> losses(3);
  host(gradient, outcome.gradient);
  host(statistics, outcome.statistics);
  host(numbers, losses);
  backend.queue().synchronize();
  outcome.loss = losses[0];
  outcome.loss_in_evaluation = losses[2];
  return outcome;
}

// With the layouts and kernels that `planner` chooses without timing.
Outcome run(Backend& backend, const Problem& problem, Backend& planner) {
  return run(backend, problem, plan_layouts(planner, stages_of(backend, problem), ChoiceMode::fixed));
}
Outcome run(Backend& backend, const Problem& problem) { return run(backend, problem, backend); }

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return std::sqrt(sum);
}
double length(const std::vector<float>& a) { return distance(a, std::vector<float>(a.size())); }

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected, const char* what,
                 double tolerance = 1e-4) {
  EXPECT_LE(distance(actual, expected), tolerance * length(expected)) << what;
}

// Whether a unit is so near a kink of its activation, or two values of a pooling window so near each other, that relative
// errors of `error` decide how the gradient flows: then the gradients at parameters that are moved by as much in opposite
// directions differ by more than `tolerance` times the gradient, which must be above what they differ by otherwise.
bool near_a_kink(Backend& backend, const Problem& problem, double error, double tolerance) {
  constexpr int kDirections = 4;
  std::mt19937_64 engine{std::random_device{}()};
  for (int direction = 0; direction < kDirections; ++direction) {
    Problem up = problem;
    Problem down = problem;
    for (std::size_t i = 0; i < problem.parameters.size(); ++i) {
      const double step = (engine() & 1U) != 0 ? error : -error;
      up.parameters[i] = static_cast<float>(static_cast<double>(up.parameters[i]) * (1 + step));
      down.parameters[i] = static_cast<float>(static_cast<double>(down.parameters[i]) * (1 - step));
    }
    const std::vector<float> gradient = run(backend, up).gradient;
    if (distance(gradient, run(backend, down).gradient) > tolerance * length(gradient)) return true;
  }
  return false;
}

// The first problem drawn that is not near a kink.
template <class Draw>
Problem away_from_kinks(Draw draw, double error, double tolerance) {
  const auto backend = make_cpu_backend();
  for (int tries = 0; tries < 100; ++tries) {
    Problem problem = draw();
    if (!near_a_kink(*backend, problem, error, tolerance)) return problem;
  }
  throw std::runtime_error("100 random problems are near kinks");
}

void compare(const Outcome& actual, const Outcome& expected, double loss, double gradient, double statistics) {
  EXPECT_NEAR(actual.loss, expected.loss, loss * expected.loss);
  EXPECT_NEAR(actual.loss_in_evaluation, expected.loss_in_evaluation, loss * expected.loss_in_evaluation);
  expect_near(actual.gradient, expected.gradient, "gradient", gradient);
  expect_near(actual.statistics, expected.statistics, "running statistics", statistics);
}

TEST(StandInNetwork, ComputesWhatTheCpuComputes) {
  const Problem problem = away_from_kinks([] { return Problem(make_graph()); }, 1e-6, 5e-5);
  const Outcome actual = run(*make_cuda_backend({}), problem);
  compare(actual, run(*make_cpu_backend(), problem), 1e-4, 1e-4, 1e-4);
  for (const Parameter& p : problem.graph.parameters()) {
    if (p.name != "conv1.bias" && p.name != "conv2.bias" && p.name != "conv3.bias" && p.name != "fc1.bias") continue;
    for (std::int64_t i = 0; i < p.elements(); ++i) {
      EXPECT_EQ(actual.gradient[static_cast<std::size_t>(p.offset + i)], 0.0F) << p.name;
    }
  }
}

// Weights packed for all layers at once, and gradients added in place. Rounding to bf16 makes relative errors of 4e-3 at
// each of about ten stages, whose gradients the batch normalisations of a few samples multiply.
TEST(StandInNetwork, ComputesTheSameInBf16) {
  const Problem problem(make_graph());
  compare(run(*make_cuda_backend({.precision = Precision::bf16}), problem), run(*make_cpu_backend(), problem), 5e-2,
          0.2, 2e-2);
}

// Likewise with relative errors of 5e-4.
TEST(StandInNetwork, ComputesTheSameInFp16) {
  const Problem problem = away_from_kinks([] { return Problem(make_graph()); }, 1e-3, 4e-2);
  compare(run(*make_cuda_backend({.precision = Precision::fp16}), problem), run(*make_cpu_backend(), problem), 1e-2,
          5e-2, 5e-3);
}

// In bf16 rounding decides which units near a kink pass, and batch normalisations multiply the difference; the running statistics
// follow from sums alone.
TEST(StandInNetwork, ComputesWhatTheCpuComputesWithJoinedBottlenecks) {
  const Problem problem(make_bottlenecks());
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  LayoutPlan plan = plan_layouts(*backend, stages_of(*backend, problem), ChoiceMode::fixed);
  for (StagePlan& stage : plan.stages) stage.separate = false;
  const Outcome actual = run(*backend, problem, plan);
  EXPECT_EQ(actual.joined, 5);
  compare(actual, run(*make_cpu_backend(), problem), 5e-2, 0.25, 2e-2);
}

// Joined operators must win by time; no rule takes them.
TEST(StandInNetwork, JoinsNothingByRule) {
  const Problem problem(make_bottlenecks());
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  for (const ChoiceMode mode : {ChoiceMode::fixed, ChoiceMode::expected}) {
    EXPECT_EQ(run(*backend, problem, plan_layouts(*backend, stages_of(*backend, problem), mode)).joined, 0);
  }
}

// The stages of the first block that begin an operator of several, in the plan that is fastest if separate stages take a second each
// and joined ones these seconds: a convolution with the normalisation behind it, and with that in front as well.
std::string joined_in_plan(const Problem& problem, double behind, double around) {
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  const std::vector<Stage> stages = stages_of(*backend, problem);
  const std::vector<KernelQuery> queries = kernel_queries(backend->ops(), stages);
  std::vector<KernelChoice> answers;
  for (const KernelQuery& query : queries) {
    const bool liked = query.from == Layout::nhwc && query.to == Layout::nhwc;
    const std::size_t count = 1 + query.rest.size();
    const std::string kernels =
        liked && count == 1 ? backend->chooser().choose(query.spec, query.from, query.to, ChoiceMode::fixed).kernels
                            : "";
    answers.push_back({kernels, !liked ? 100.0 : count == 1 ? 1 : count == 2 ? behind : around});
  }
  const LayoutPlan plan = plan_layouts(backend->ops(), stages, queries, answers);
  const std::string text = to_text(plan);
  EXPECT_EQ(to_text(layout_plan_from_text(text, stages)), text);
  const std::vector<float> scale(problem.image().channels, 1.0F);
  const NetworkConfig config{
      .batch = kBatch, .image = problem.image(), .scale = scale, .shift = scale, .plan_only = true};
  std::istringstream lines(Network(*backend, problem.graph, config, plan).describe());
  std::string begins;
  for (std::string line; std::getline(lines, line);) {
    const bool on_the_way = line.starts_with("one.conv") || line.starts_with("one.norm");
    if (on_the_way && line.ends_with(" joined")) begins += line.substr(4, line.find(' ') - 3);
  }
  return begins;
}

// Plans have the fastest of the operators that could compute some of a block's stages.
TEST(StandInNetwork, PlansJoinAsManyStagesAsIsFastest) {
  const Problem problem(make_bottlenecks());
  EXPECT_EQ(joined_in_plan(problem, 1.9, 2.5), "conv1 norm2 ");
  EXPECT_EQ(joined_in_plan(problem, 1.9, 2.95), "conv1 conv3 ");
  EXPECT_EQ(joined_in_plan(problem, 2.1, 2.95), "norm2 ");
  EXPECT_EQ(joined_in_plan(problem, 2.1, 3.1), "");
}

// Its biases are moved away from zero, so that rounding to bf16 does not decide which units pass their ReLU: of a linear layer
// with few units and samples, one of them has several hundredths of the gradient.
Problem lenet_problem() {
  Problem problem(make_model("lenet", {1, 18, 18}, 4));
  for (const Parameter& p : problem.graph.parameters()) {
    if (p.name != "fc1.bias") continue;
    for (std::int64_t i = 0; i < p.elements(); ++i) {
      float& bias = problem.parameters[static_cast<std::size_t>(p.offset + i)];
      bias += std::copysign(2.0F, bias);
    }
  }
  return problem;
}

// LeNet's step: the images, all weights, each layer in both directions, the last one with the loss.
TEST(StandInNetwork, LenetInBf16IsFewKernels) {
  const Problem problem = lenet_problem();
  const Outcome actual = run(*make_cuda_backend({.precision = Precision::bf16}), problem);
  EXPECT_EQ(actual.kernels, 9U);
  compare(actual, run(*make_cpu_backend(), problem), 2e-2, 5e-2, 2e-2);
}

// The same kernels in fp32 and tf32.
TEST(StandInNetwork, LenetOfPartsIsAsFewKernels) {
  const auto planner = make_cuda_backend({.precision = Precision::bf16});
  for (const Precision precision : {Precision::fp32, Precision::tf32}) {
    const double tolerance = precision == Precision::fp32 ? 1e-6 : 2e-5;
    const Problem problem = away_from_kinks(lenet_problem, tolerance / 2, 10 * tolerance);
    const Outcome expected = run(*make_cpu_backend(), problem);
    const Outcome actual = run(*make_cuda_backend({.precision = precision}), problem, *planner);
    EXPECT_EQ(actual.kernels, 9U);
    compare(actual, expected, tolerance, 10 * tolerance, tolerance);
  }
}

}  // namespace
}  // namespace ddp
