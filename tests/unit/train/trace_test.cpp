// Finding the first non-finite value of a step.
#include "train/nonfinite/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "model/initialize.h"
#include "model/zoo.h"
#include "train/nonfinite/non_finite.h"

namespace ddp {
namespace {

using testing::ElementsAre;

class TraceShard : public testing::Test {
 protected:
  static constexpr std::int64_t kSamples = 21;  // not a multiple of 16

  TraceShard() : parameters(static_cast<std::size_t>(graph.flat_elements())), pixels(kSamples * 784), labels(kSamples) {
    initialize(graph, std::nullopt, 1, parameters);
  }

  void fill(const std::string& name, float value) {
    for (const Parameter& p : graph.parameters()) {
      if (p.name == name) std::fill_n(parameters.begin() + p.offset, p.elements(), value);
    }
  }
  Trace trace(float gradient_scale = 1.0F / kSamples) {
    Network network(*backend, graph, {kSamples + 3, {1, 28, 28}, {1.0F / 255.0F}, {0.0F}, 0.0F},
                    plan_layouts(*backend, make_stages(graph, kSamples + 3), ChoiceMode::fixed));
    return trace_shard(*backend, network, parameters.data(), {},
                       {.pixels = pixels.data(), .labels = labels.data(), .count = kSamples}, gradient_scale);
  }

  std::unique_ptr<Backend> backend = make_cpu_backend();
  Graph graph = make_model("lenet", {1, 28, 28}, 10);
  std::vector<float> parameters;
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;
};

TEST_F(TraceShard, HasARowForEveryOutputAndGradient) {
  std::fill(pixels.begin(), pixels.end(), std::uint8_t{51});
  const Trace found = trace();
  EXPECT_EQ(first_not_finite(found.rows), nullptr);
  EXPECT_NEAR(found.loss_sum / kSamples, std::log(10), 0.5);
  EXPECT_EQ(found.rows.front().where, "the input");
  EXPECT_NEAR(found.rows.front().min, 0.2, 1e-6);
  EXPECT_NEAR(found.rows.front().max, 0.2, 1e-6);
  EXPECT_NEAR(found.rows.front().mean_abs(), 0.2, 1e-6);
  std::int64_t trained = 0;
  for (const TraceRow& row : found.rows) {
    if (row.backward && row.where.starts_with("the gradient of '")) trained += row.finite;
  }
  EXPECT_EQ(trained, graph.trained_count());
  EXPECT_THAT(trace_table(found.rows), testing::HasSubstr("the output of layer 'conv2'"));
}

TEST_F(TraceShard, NamesTheImageThatOverflows) {
  fill("conv1.weight", 1e38F);
  for (const std::int64_t white : {3, 17}) std::fill_n(pixels.begin() + 784 * white, 784, std::uint8_t{255});
  const Trace found = trace();
  const TraceRow* first = first_not_finite(found.rows);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->where, "the output of layer 'conv1'");
  EXPECT_FALSE(first->backward);
  EXPECT_THAT(first->samples, ElementsAre(3, 17));
}

TEST_F(TraceShard, NamesTheLayerOfAWeight) {
  std::fill(pixels.begin(), pixels.end(), std::uint8_t{51});
  fill("fc2.weight", std::numeric_limits<float>::quiet_NaN());
  const Trace found = trace();
  const TraceRow* first = first_not_finite(found.rows);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->where, "the output of layer 'fc2'");
  EXPECT_EQ(first->samples.size(), static_cast<std::size_t>(kSamples));
}

// All outputs are finite, but the gradient of each input of the last layer overflows: 5.9e38.
TEST_F(TraceShard, NamesAGradient) {
  fill("fc1.weight", 0);
  fill("fc1.bias", 0);
  fill("fc2.weight", 3.3e38F);
  fill("fc2.bias", 0);
  for (const Parameter& p : graph.parameters()) {
    if (p.name == "fc2.weight") std::fill_n(parameters.begin() + p.offset, p.shape[1], -3.3e38F);  // for class 0
  }
  for (const TraceRow& row : trace(1.0F).rows) {
    EXPECT_TRUE(row.backward || row.non_finite == 0) << row.where;
  }
  const Trace found = trace(1.0F);
  const TraceRow* first = first_not_finite(found.rows);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->where, "the gradient that layer 'fc2' passes to 'fc1'");
  EXPECT_EQ(first->samples.size(), static_cast<std::size_t>(kSamples));
}

TEST_F(TraceShard, ShardsAddUp) {
  fill("conv1.weight", 1e38F);
  std::fill_n(pixels.begin() + 784 * 5, 784, std::uint8_t{255});
  const Trace shard = trace();
  Trace all;
  add_shard(all, shard, 0);
  add_shard(all, shard, kSamples);
  EXPECT_THAT(first_not_finite(all.rows)->samples, ElementsAre(5, 5 + kSamples));
  EXPECT_EQ(all.rows.front().finite, 2 * shard.rows.front().finite);
}

// Files of images say more than numbers.
TEST(NonFiniteSamples, HaveTheirFilesBesideThem) {
  const std::vector<std::uint32_t> indices = {3, 17};
  const auto file_of = [](std::uint32_t index) { return index == 17 ? std::string("train/cat/7.jpg") : std::string(); };
  EXPECT_EQ(sample_list(indices), "samples 3, 17");
  EXPECT_EQ(sample_list(indices, file_of), "samples 3, 17 (train/cat/7.jpg)");
  EXPECT_EQ(sample_list(std::span(indices).last(1), file_of), "sample 17 (train/cat/7.jpg)");
}

}  // namespace
}  // namespace ddp
