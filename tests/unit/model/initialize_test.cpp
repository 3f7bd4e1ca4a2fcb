#include "model/initialize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/zoo.h"

namespace ddp {
namespace {

struct Moments {
  double mean = 0;
  double deviation = 0;
  double largest = 0;
};

Moments moments_of(const Graph& graph, const std::vector<float>& flat, const std::string& name) {
  Moments m;
  for (const Parameter& p : graph.parameters()) {
    if (p.name != name) continue;
    const auto count = static_cast<double>(p.elements());
    for (std::int64_t i = 0; i < p.elements(); ++i) {
      const auto value = static_cast<double>(flat[static_cast<std::size_t>(p.offset + i)]);
      m.mean += value / count;
      m.deviation += value * value / count;
      m.largest = std::max(m.largest, std::abs(value));
    }
  }
  m.deviation = std::sqrt(m.deviation);
  return m;
}

TEST(Initialize, FollowsTheFormulae) {
  const Graph graph = make_model("lenet", {1, 28, 28}, 10);
  std::vector<float> flat(static_cast<std::size_t>(graph.flat_elements()));
  using Kind = Initial::Kind;
  // fc1 has 102,400 weights, 800 inputs and 128 outputs, so its standard deviation is within 1% of the formula.
  initialize(graph, Initial{Kind::normal, 0.01F}, 3, flat);
  EXPECT_NEAR(moments_of(graph, flat, "fc1.weight").deviation, 0.01, 1e-4);
  EXPECT_EQ(moments_of(graph, flat, "fc1.bias").largest, 0);
  initialize(graph, Initial{Kind::kaiming_fan_in, 1}, 3, flat);
  EXPECT_NEAR(moments_of(graph, flat, "fc1.weight").deviation, std::sqrt(2.0 / 800), 5e-4);
  initialize(graph, Initial{Kind::xavier_uniform, 1}, 3, flat);
  const double bound = std::sqrt(6.0 / 928);
  EXPECT_NEAR(moments_of(graph, flat, "fc1.weight").largest, bound, 1e-3 * bound);
  EXPECT_NEAR(moments_of(graph, flat, "fc1.weight").deviation, bound / std::sqrt(3), 1e-2 * bound);
  initialize(graph, std::nullopt, 3, flat);  // LeNet uses PyTorch's default initialisation
  EXPECT_NEAR(moments_of(graph, flat, "fc1.weight").largest, 1 / std::sqrt(800), 1e-4);
  EXPECT_GT(moments_of(graph, flat, "fc1.bias").largest, 0.5 / std::sqrt(800));
  EXPECT_NEAR(moments_of(graph, flat, "fc1.weight").mean, 0, 5 / std::sqrt(800 * 3) / std::sqrt(102400));
}

TEST(Initialize, ModelsBeginAsTheirSources) {
  const Graph graph = make_model("mobilenet-v2", {3, 32, 32}, 10);
  std::vector<float> flat(static_cast<std::size_t>(graph.flat_elements()));
  initialize(graph, std::nullopt, 3, flat);
  // features.18.0: 1280 x 320 weights of 1x1, N(0, 2 / fan_out).
  EXPECT_NEAR(moments_of(graph, flat, "features.18.0.weight").deviation, std::sqrt(2.0 / 1280), 5e-4);
  EXPECT_NEAR(moments_of(graph, flat, "classifier.1.weight").deviation, 0.01, 5e-4);
  EXPECT_EQ(moments_of(graph, flat, "features.0.1.weight").mean, 1);
  EXPECT_EQ(moments_of(graph, flat, "features.0.1.bias").largest, 0);
  // mnist-slim's truncated normal ends at two standard deviations.
  const Graph slim = make_model("mnist-slim", {1, 28, 28}, 10);
  flat.resize(static_cast<std::size_t>(slim.flat_elements()));
  initialize(slim, std::nullopt, 3, flat);
  EXPECT_LE(moments_of(slim, flat, "fc1.weight").largest, 0.02F);
  EXPECT_GT(moments_of(slim, flat, "fc1.weight").largest, 0.0199);
  // A normal distribution truncated at two standard deviations has 0.8796 of the original one.
  EXPECT_NEAR(moments_of(slim, flat, "fc1.weight").deviation, 0.008796, 1e-4);
}

TEST(Initialize, IsAFunctionOfTheSeed) {
  const Graph graph = make_model("lenet", {1, 28, 28}, 10);
  std::vector<float> a(static_cast<std::size_t>(graph.flat_elements()));
  std::vector<float> b = a;
  initialize(graph, std::nullopt, 7, a);
  initialize(graph, std::nullopt, 7, b);
  EXPECT_EQ(a, b);
  initialize(graph, std::nullopt, 8, b);
  EXPECT_NE(a, b);
}

// torch.nn.init.dirac_(weight[:inputs]).
TEST(Initialize, DiracConvolutionsPassTheirInputsOn) {
  const Graph graph = make_model("airbench94", {3, 32, 32}, 10);
  std::vector<float> flat(static_cast<std::size_t>(graph.flat_elements()));
  initialize(graph, std::nullopt, 3, flat);
  for (const Parameter& p : graph.parameters()) {
    if (p.initial.kind != Initial::Kind::dirac) continue;
    const std::int64_t inputs = p.shape[1];
    float largest = 0;
    for (std::int64_t i = 0; i < p.elements(); ++i) {
      const float value = flat[static_cast<std::size_t>(p.offset + i)];
      const std::int64_t output = i / (inputs * 9);
      if (output < inputs) {
        ASSERT_EQ(value, i % (inputs * 9) == output * 9 + 4 ? 1.0F : 0.0F) << p.name << " " << i;
      } else {
        largest = std::max(largest, std::abs(value));
      }
    }
    if (p.shape[0] > inputs) {
      EXPECT_NEAR(largest, 1 / std::sqrt(static_cast<double>(inputs) * 9), 1e-4) << p.name;  // PyTorch's default
    }
  }
  EXPECT_NEAR(moments_of(graph, flat, "scale.weight").mean, 1.0 / 9, 1e-8);
  EXPECT_EQ(moments_of(graph, flat, "whiten.bias").largest, 0);
  // An explicit --init replaces all of it.
  initialize(graph, Initial{Initial::Kind::normal, 0.01F}, 3, flat);
  EXPECT_NEAR(moments_of(graph, flat, "group3.conv2.weight").deviation, 0.01, 1e-4);
}

// w *= 1 / w.std()
TEST(Initialize, ScalesATensorToAStandardDeviation) {
  const Graph graph = make_model("airbench94-muon", {3, 32, 32}, 10);
  std::vector<float> flat(static_cast<std::size_t>(graph.flat_elements()));
  initialize(graph, std::nullopt, 3, flat);
  const Moments head = moments_of(graph, flat, "head.weight");
  const double squares = head.deviation * head.deviation - head.mean * head.mean;
  EXPECT_NEAR(std::sqrt(squares * 2560 / 2559), 1, 1e-6);  // rounding to fp32
  EXPECT_NEAR(head.largest, std::sqrt(3.0), 0.05);
  EXPECT_NEAR(moments_of(graph, flat, "scale.weight").mean, 1.0 / 256, 1e-8);
}

}  // namespace
}  // namespace ddp
