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
  std::vector<float> flat(static_cast<std::size_t>(graph.parameter_count()));
  using Kind = Initializer::Kind;
  // fc1 has 102,400 weights, 800 inputs and 128 outputs: its deviation is within 1% of the formula's.
  initialize(graph, {Kind::normal, 0.01F}, 3, flat);
  EXPECT_NEAR(moments_of(graph, flat, "fc1.weight").deviation, 0.01, 1e-4);
  EXPECT_EQ(moments_of(graph, flat, "fc1.bias").largest, 0);
  initialize(graph, {Kind::kaiming, 0}, 3, flat);
  EXPECT_NEAR(moments_of(graph, flat, "fc1.weight").deviation, std::sqrt(2.0 / 800), 5e-4);
  initialize(graph, {Kind::xavier, 0}, 3, flat);
  const double bound = std::sqrt(6.0 / 928);
  EXPECT_NEAR(moments_of(graph, flat, "fc1.weight").largest, bound, 1e-3 * bound);
  EXPECT_NEAR(moments_of(graph, flat, "fc1.weight").deviation, bound / std::sqrt(3), 1e-2 * bound);
  initialize(graph, {Kind::pytorch, 0}, 3, flat);
  EXPECT_NEAR(moments_of(graph, flat, "fc1.weight").largest, 1 / std::sqrt(800), 1e-4);
  EXPECT_GT(moments_of(graph, flat, "fc1.bias").largest, 0.5 / std::sqrt(800));
  EXPECT_NEAR(moments_of(graph, flat, "fc1.weight").mean, 0, 5 / std::sqrt(800 * 3) / std::sqrt(102400));
}

TEST(Initialize, IsAFunctionOfTheSeed) {
  const Graph graph = make_model("lenet", {1, 28, 28}, 10);
  std::vector<float> a(static_cast<std::size_t>(graph.parameter_count()));
  std::vector<float> b = a;
  initialize(graph, {}, 7, a);
  initialize(graph, {}, 7, b);
  EXPECT_EQ(a, b);
  initialize(graph, {}, 8, b);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace ddp
