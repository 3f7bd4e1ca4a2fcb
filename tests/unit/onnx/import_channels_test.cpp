// Products that exporters write for functions of one value, and branches whose channels are joined, split and shuffled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "onnx/import.h"
#include "support/graph_reference.h"
#include "unit/onnx/model_maker.h"
#include "unit/onnx/only_layer.h"

namespace ddp {
namespace {

using Integers = ModelMaker::Integers;

// As exporters write them, before ONNX had operators for them.
TEST(ImportOnnx, ProductsWithAFunctionOfTheSameValueAreOneLayer) {
  const auto with = [](const std::function<std::string(ModelMaker&, const std::string&)>& make) {
    ModelMaker m({-1, 2, 3, 3});
    m.output(m.classifier(make(m, m.node("Relu", {"input"})), 18, 3));
    return only_layer<PointwiseSpec>(m.imported().graph).function;
  };
  EXPECT_EQ(with([](ModelMaker& m, const std::string& x) {
              return m.node("Mul", {m.node("Sigmoid", {x}), x});
            }),
            PointwiseFunction::silu);
  EXPECT_EQ(with([](ModelMaker& m, const std::string& x) {
              return m.node("Mul", {x, m.node("HardSigmoid", {x}, {{"alpha", 1.0F / 6}})});
            }),
            PointwiseFunction::hardswish);
  EXPECT_EQ(with([](ModelMaker& m, const std::string& x) {
              return m.node("Mul", {x, m.node("Tanh", {m.node("Softplus", {x})})});
            }),
            PointwiseFunction::mish);
}

// Stochastic depth and spatial dropout, as PyTorch's exporters write them: x * ((r < p) / p).
DropoutLayer masked(const Integers& mask, double kept = 0.75, double less_than = 0.75) {
  ModelMaker m({-1, 3, 4, 5});
  const std::string x = m.node("Relu", {"input"});
  const auto real = [&](const std::string& name, double value) {
    return m.reals(name, {}, {static_cast<float>(value)});
  };
  const std::string samples = m.node("Shape", {x}, {{"start", std::int64_t{0}}, {"end", std::int64_t{1}}});
  const std::string shape = m.node("Concat", {samples, m.integers("rest", mask)}, {{"axis", std::int64_t{0}}});
  const std::string empty = m.node("Cast", {m.node("Expand", {real("zero", 0), shape})}, {{"to", std::int64_t{1}}});
  const std::string random = m.node("RandomUniformLike", {empty}, {{"low", 0.0F}, {"high", 1.0F}});
  const std::string sampled = m.node("Less", {random, m.node("CastLike", {real("bound", less_than), random})});
  const std::string drawn = m.node("CastLike", {sampled, empty});
  m.output(m.classifier(m.node("Mul", {x, m.node("Div", {drawn, real("kept", kept)})}), 60, 3));
  const Graph graph = m.imported().graph;
  return only_layer<DropoutLayer>(graph);
}

TEST(ImportOnnx, ProductsWithRandomMasksAreDropout) {
  const DropoutLayer depth = masked({1, 1, 1});
  EXPECT_EQ(depth.unit, DropoutUnit::sample);
  EXPECT_EQ(depth.rate, 0.25F);
  EXPECT_EQ(masked({3, 1, 1}).unit, DropoutUnit::channel);
  EXPECT_EQ(masked({3, 4, 5}).unit, DropoutUnit::element);
}

TEST(ImportOnnx, OtherRandomMasksAreRefused) {
  const auto error = [](const Integers& mask, double kept, double less_than) -> std::string {
    try {
      (void)masked(mask, kept, less_than);
    } catch (const Error& thrown) {
      return thrown.what();
    }
    return "no error";
  };
  EXPECT_THAT(error({1, 4, 5}, 0.75, 0.75), testing::HasSubstr("drops neither elements, nor channels, nor samples"));
  // Not the factor that keeps the mean: some other random code.
  EXPECT_THAT(error({1, 1, 1}, 0.75, 0.5), testing::HasSubstr("such as random numbers"));
}

TEST(ImportOnnx, MaximaAndSumsOverAllPixels) {
  const auto with = [](const std::string& type, const Integers& axes) {
    ModelMaker m({-1, 2, 3, 2});
    const std::string x = m.node(type, {"input", m.integers("axes", axes)}, {{"keepdims", std::int64_t{0}}});
    // The logits are what is reduced.
    const std::string identity = m.reals("fc.weight", {2, 2}, {1, 0, 0, 1});
    m.output(m.node("Gemm", {x, identity}, {{"transB", std::int64_t{1}}}));
    const ImportedModel model = m.imported();
    const std::vector<float> image = {1, -2, 3, 4, 0.5F, 6, -1, -2, -3, -4, -5, -0.5F};
    return GraphReference(model.graph, model.parameters, model.statistics).logits(image);
  };
  EXPECT_EQ(with("ReduceMax", {2, 3}), (std::vector<double>{6, -0.5}));
  EXPECT_NEAR(with("ReduceSum", {-1, -2})[0], 12.5, 1e-6);
  EXPECT_NEAR(with("ReduceSum", {-1, -2})[1], -15.5, 1e-6);
  EXPECT_THROW((void)with("ReduceMax", {1}), Error);
}

// A factor that something else reads too stays a layer of its own.
TEST(ImportOnnx, ASharedFactorIsAProduct) {
  ModelMaker m({-1, 2, 3, 3});
  const std::string x = m.node("Relu", {"input"});
  const std::string factor = m.node("Sigmoid", {x});
  m.output(m.classifier(m.node("Add", {m.node("Mul", {x, factor}), factor}), 18, 3));
  const Graph graph = m.imported().graph;
  (void)only_layer<ProductLayer>(graph);
}

TEST(ImportOnnx, ChannelsAreSplitJoinedAndShuffled) {
  ModelMaker m({-1, 6, 3, 2});
  const std::string x = m.node("Relu", {"input"});
  m.node("Split", {x, m.integers("sizes", {2, 1, 3})}, {{"axis", std::int64_t{1}}});
  m.model.nodes.back().outputs = {"first", "second", "third"};
  std::string y = m.node("Concat", {"third", "first", x}, {{"axis", std::int64_t{-3}}});  // 11 channels
  y = m.node("Slice", {y, m.integers("starts", {-10, 0}), m.integers("ends", {100, 2147483647}),
                       m.integers("axes", {1, 3})});  // without the first
  y = m.node("Reshape", {y, m.integers("groups", {0, 5, 2, 3, 2})});
  y = m.node("Transpose", {y}, {{"perm", Integers{0, 2, 1, 3, 4}}});
  y = m.node("Reshape", {y, m.integers("image", {-1, 10, 3, 2})});
  m.output(m.classifier(y, 60, 4));
  const ImportedModel model = m.imported();
  // From where each channel comes, with unused parts not in the graph.
  const std::vector<std::size_t> third_first_all = {3, 4, 5, 0, 1, 0, 1, 2, 3, 4, 5};
  std::vector<float> image(36);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(i);
  std::vector<double> shuffled;
  for (std::size_t i = 0; i < 10; ++i) {
    const std::size_t channel = third_first_all[1 + i % 5 * 2 + i / 5];
    for (std::size_t p = 0; p < 6; ++p) shuffled.push_back(static_cast<double>(channel * 6 + p));
  }
  const std::vector<double> logits = GraphReference(model.graph, model.parameters, model.statistics).logits(image);
  const std::vector<float>& weights = model.parameters;
  for (std::size_t c = 0; c < 4; ++c) {
    double expected = 0;
    for (std::size_t i = 0; i < 60; ++i) expected += static_cast<double>(weights[c * 60 + i]) * shuffled[i];
    expected += static_cast<double>(model.parameters[static_cast<std::size_t>(model.graph.parameters()[1].offset) + c]);
    EXPECT_NEAR(logits[c], expected, 1e-4) << c;
  }
}

}  // namespace
}  // namespace ddp
