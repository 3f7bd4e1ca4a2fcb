#include "train/parallel/stage_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "model/initialize.h"
#include "model/zoo.h"

namespace ddp {
namespace {

TEST(StageTimes, EachStageOfAPassHasATime) {
  const auto backend = make_cpu_backend();
  const Graph graph = make_model("lenet", {1, 28, 28}, 10);
  const NetworkConfig config{16, {1, 28, 28}, {1.0F / 255.0F}, {0.0F}, 0.0F};
  Network network(*backend, graph, config, plan_layouts(*backend, make_stages(graph, 16), ChoiceMode::fixed));
  std::vector<float> parameters(static_cast<std::size_t>(graph.flat_elements()));
  initialize(graph, std::nullopt, 1, parameters);
  const std::vector<float> before = parameters;
  const std::vector<StageTime> times = time_stages(*backend, network, parameters.data(), graph.statistic_count(), 0.01);
  ASSERT_EQ(times.size(), network.work().size());
  for (const StageTime& time : times) {
    EXPECT_GT(time.forward_seconds, 0) << time.work.name;
    EXPECT_LT(time.forward_seconds, 10) << time.work.name;
    EXPECT_GT(time.backward_seconds, 0) << time.work.name;
    EXPECT_LT(time.backward_seconds, 10) << time.work.name;
  }
  EXPECT_EQ(parameters, before);
}

// The first convolution of LeNet: 20 filters of 3x3 over 26x26 positions, pooled, without a gradient of the images.
TEST(StageTimes, WorkIsWhatTheOperatorsMustDo) {
  const auto backend = make_cpu_backend();
  const Graph graph = make_model("lenet", {1, 28, 28}, 10);
  const NetworkConfig config{16, {1, 28, 28}, {1.0F / 255.0F}, {0.0F}, 0.0F};
  const Network network(*backend, graph, config, plan_layouts(*backend, make_stages(graph, 16), ChoiceMode::fixed));
  const StageWork conv = network.work().front();
  EXPECT_EQ(conv.kind, "conv");
  const double flops = 2.0 * 16 * 20 * 9 * 24 * 24;
  EXPECT_EQ(conv.forward_flops, flops);
  EXPECT_EQ(conv.backward_flops, flops);
  const double image = 4.0 * 16 * 26 * 26;
  const double output = 4.0 * 16 * 20 * 12 * 12;
  const double parameters = 4.0 * (20 * 9 + 20);
  EXPECT_EQ(conv.forward_bytes, image + output + parameters);
  EXPECT_EQ(conv.backward_bytes, output + image + 2 * parameters);
}

// Backward of a product reads both factors, and writes the gradients of both.
TEST(StageTimes, BackwardReadsAllInputsThatItsOperatorNames) {
  const auto backend = make_cpu_backend();
  Graph graph({3, 4, 4});
  const int conv = graph.conv("conv", graph.input(), {.channels = 8});
  graph.linear("fc", graph.flatten(graph.product(conv, graph.activation(conv, Activation::sigmoid))), 2);
  const NetworkConfig config{16, {3, 4, 4}, {1, 1, 1}, {0, 0, 0}};
  const Network network(*backend, graph, config, plan_layouts(*backend, make_stages(graph, 16), ChoiceMode::fixed));
  const std::vector<StageWork> all = network.work();
  const auto product = std::ranges::find(all, "product", &StageWork::kind);
  ASSERT_NE(product, all.end());
  const double tensor = 4.0 * 16 * 8 * 4 * 4;
  EXPECT_EQ(product->forward_bytes, 3 * tensor);
  EXPECT_EQ(product->backward_bytes, 5 * tensor);
}

TEST(StageTimes, TheWatchSeesEachStepBeginAndEnd) {
  const auto backend = make_cpu_backend();
  const Graph graph = make_model("lenet", {1, 28, 28}, 10);
  const NetworkConfig config{16, {1, 28, 28}, {1.0F / 255.0F}, {0.0F}, 0.0F};
  Network network(*backend, graph, config, plan_layouts(*backend, make_stages(graph, 16), ChoiceMode::fixed));
  const std::vector<float> parameters(static_cast<std::size_t>(graph.flat_elements()));
  std::vector<float> gradient(parameters.size());
  const std::vector<std::uint8_t> pixels(16 * 784);
  const std::vector<std::int32_t> labels(16);
  double loss = 0;
  double correct = 0;
  std::vector<int> seen;  // step, negative in backward; only what begins, and each ends before the next one begins
  bool open = false;
  network.watch_steps([&](std::size_t step, bool backward, bool begins) {
    EXPECT_EQ(open, !begins);
    open = begins;
    if (begins) seen.push_back(backward ? -static_cast<int>(step) - 1 : static_cast<int>(step));
  });
  network.forward(Pass::training, {parameters.data()}, {pixels.data(), nullptr, labels.data(), 16},
                  {&loss, &correct, 1.0F});
  network.backward(parameters.data(), gradient.data(), [](std::int64_t) {});
  std::vector<int> expected;
  const auto steps = static_cast<int>(network.work().size());
  for (int i = 0; i < steps; ++i) expected.push_back(i);
  for (int i = steps; i-- > 0;) expected.push_back(-i - 1);
  EXPECT_EQ(seen, expected);
}

TEST(StageTimes, TheTableGivesRatesAndSharesOfThePeak) {
  // 2 GFLOP in 0.1 s are 20 GFLOP/s, 40 % of 50; 1 GB in 0.5 s are 2 GB/s, 20 % of 10.
  const std::vector<StageTime> times = {
      {{"conv1", "conv", Layout::lanes16, 2e9, 4e9, 1e6, 2e6}, 0.1, 0.1},
      {{"norm1", "batch_norm", Layout::lanes16, 0, 0, 1e9, 2e9}, 0.5, 0.5},
  };
  const auto words_of = [](const std::string& line) {
    std::istringstream text(line);
    return std::vector<std::string>(std::istream_iterator<std::string>(text), {});
  };
  std::istringstream lines(stage_table(times, DevicePeak{50e9, 10e9}));
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(words_of(line));
  using testing::ElementsAre;
  ASSERT_GE(rows.size(), 4U);
  EXPECT_THAT(rows[1], ElementsAre("conv1", "conv", "lanes16", "100.000", "20.0", "0.0", "40%", "100.000", "40.0",
                                   "0.0", "80%"));
  EXPECT_THAT(rows[2], ElementsAre("norm1", "batch_norm", "lanes16", "500.000", "–", "2.0", "20%", "500.000", "–",
                                   "4.0", "40%"));
  EXPECT_THAT(rows[3], ElementsAre("sum", "600.000", "3.3", "1.7", "7%", "600.000", "6.7", "3.3", "13%"));
  EXPECT_THAT(stage_table(times, DevicePeak{50e9, 10e9}), testing::HasSubstr("measured peak: 50.0 GFLOP/s"));
  EXPECT_THAT(stage_table(times, std::nullopt),
              testing::Not(testing::AnyOf(testing::HasSubstr("peak:"), testing::HasSubstr("%"))));
}

// What lies before the first parameter that is trained has no backward pass, and no share of the peak in it.
TEST(StageTimes, FrozenStagesHaveNoBackward) {
  const auto backend = make_cpu_backend();
  Graph graph = make_model("lenet", {1, 28, 28}, 10);
  for (std::size_t p = 0; p < graph.parameters().size(); ++p) {
    if (graph.parameters()[p].name.starts_with("conv")) graph.freeze(p);
  }
  const NetworkConfig config{16, {1, 28, 28}, {1.0F / 255.0F}, {0.0F}, 0.0F};
  const Network network(*backend, graph, config, plan_layouts(*backend, make_stages(graph, 16), ChoiceMode::fixed));
  std::vector<StageTime> times;
  for (const StageWork& work : network.work()) times.push_back({work, 1e-3, 1e-7});
  EXPECT_EQ(times.front().work.backward_bytes, 0);
  EXPECT_EQ(times.front().work.backward_flops, 0);
  EXPECT_GT(times.back().work.backward_bytes, 0);
  std::istringstream lines(stage_table(times, DevicePeak{50e9, 10e9}));
  std::string header;
  std::string conv1;
  std::getline(lines, header);
  std::getline(lines, conv1);
  EXPECT_THAT(conv1, testing::AllOf(testing::HasSubstr("conv1"), testing::ContainsRegex("– +– +– +–$")));
}

TEST(CpuPeak, IsThatOfAProcessor) {
  const DevicePeak peak = measure_cpu_peak();
  EXPECT_GT(peak.flops, 1e8);
  EXPECT_LT(peak.flops, 1e15);
  EXPECT_GT(peak.bytes_per_second, 1e7);
  EXPECT_LT(peak.bytes_per_second, 1e13);
}

}  // namespace
}  // namespace ddp
