// Layer, group and instance normalisation in all forms in which exporters write them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
using testing::HasSubstr;

constexpr std::int64_t kChannels = 6;

// A maker whose image is an activation, so that normalisations have something to read.
ModelMaker maker() { return ModelMaker({-1, kChannels, 2, 3}); }

std::string weight(ModelMaker& m) { return m.random("norm.weight", {kChannels}, 0.5F, 2); }
std::string bias(ModelMaker& m) { return m.random("norm.bias", {kChannels}); }
std::string last(ModelMaker& m, const std::string& x) {
  return m.node("Transpose", {x}, {{"perm", Integers{0, 2, 3, 1}}});
}
std::string first(ModelMaker& m, const std::string& x) {
  return m.node("Transpose", {x}, {{"perm", Integers{0, 3, 1, 2}}});
}

ImportedModel finished(ModelMaker& m, const std::string& x) {
  m.output(m.classifier(x, 6 * kChannels, 3));
  return m.imported();
}

std::string error_of(ModelMaker& m, const std::string& x) {
  try {
    (void)finished(m, x);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::vector<double> logits(const ImportedModel& model) {
  std::vector<float> image(6 * kChannels);
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = 0.125F * static_cast<float>(i * i % 23);
  return GraphReference(model.graph, model.parameters, model.statistics).logits(image);
}

TEST(ImportNorms, LayerNormalizationOfTheLastAxis) {
  ModelMaker m = maker();
  const std::string x = last(m, m.node("Relu", {"input"}));
  const std::string y =
      m.node("LayerNormalization", {x, weight(m), bias(m)}, {{"axis", std::int64_t{-1}}, {"epsilon", 1e-3F}});
  const ImportedModel model = finished(m, first(m, y));
  const auto& norm = only_layer<SampleNormLayer>(model.graph);
  EXPECT_EQ(norm.over, NormOver::channels);
  EXPECT_EQ(norm.epsilon, 1e-3F);
  EXPECT_FALSE(norm.fixed_weight || norm.fixed_bias);
  EXPECT_EQ(model.graph.parameters()[0].name, "norm.weight");
  EXPECT_EQ(model.graph.parameters()[1].name, "norm.bias");
  EXPECT_EQ(std::vector<float>(model.parameters.begin(), model.parameters.begin() + kChannels),
            m.model.initializers.at("norm.weight").reals);
}

TEST(ImportNorms, LayerNormalizationOfAVectorWithoutBias) {
  ModelMaker m({-1, 1, 2, 3});
  const std::string x = m.node("Flatten", {m.node("Relu", {"input"})});
  const std::string y = m.node("LayerNormalization", {x, weight(m)});
  m.output(m.node("Gemm", {y, m.random("fc.weight", {3, 6})}, {{"transB", std::int64_t{1}}}));
  const ImportedModel model = m.imported();
  const auto& norm = only_layer<SampleNormLayer>(model.graph);
  EXPECT_EQ(norm.over, NormOver::channels);
  EXPECT_FALSE(norm.fixed_weight);
  EXPECT_TRUE(norm.fixed_bias);
}

// As exporters write it before opset 17.
TEST(ImportNorms, LayerNormalizationInPieces) {
  const auto with = [](bool pieces, bool squared_by_product) {
    ModelMaker m = maker();
    const std::string x = last(m, m.node("Relu", {"input"}));
    std::string y;
    if (pieces) {
      const ModelMaker::Attributes axes = {{"axes", Integers{-1}}};
      const std::string away = m.node("Sub", {x, m.node("ReduceMean", {x}, axes)});
      const std::string square =
          squared_by_product ? m.node("Mul", {away, away}) : m.node("Pow", {away, m.reals("two", {}, {2})});
      const std::string sum = m.node("Add", {m.node("ReduceMean", {square}, axes), m.reals("epsilon", {}, {1e-2F})});
      y = m.node("Mul", {m.node("Div", {away, m.node("Sqrt", {sum})}), weight(m)});
      y = m.node("Add", {y, bias(m)});
    } else {
      y = m.node("LayerNormalization", {x, weight(m), bias(m)}, {{"epsilon", 1e-2F}});
    }
    const ImportedModel model = finished(m, first(m, y));
    (void)only_layer<SampleNormLayer>(model.graph);
    EXPECT_EQ(model.graph.parameters().size(), 4U);
    return logits(model);
  };
  EXPECT_EQ(with(true, false), with(false, false));
  EXPECT_EQ(with(true, true), with(false, false));
}

TEST(ImportNorms, OtherAxesAreRefused) {
  ModelMaker m = maker();
  const std::string y = m.node("LayerNormalization", {m.node("Relu", {"input"}), m.random("w", {3})});
  EXPECT_THAT(error_of(m, y), HasSubstr("only the channels can be normalised"));
  ModelMaker whole = maker();
  const std::string z = whole.node("LayerNormalization", {whole.node("Relu", {"input"}), whole.random("w", {6, 2, 3})},
                                   {{"axis", std::int64_t{1}}});
  EXPECT_THAT(error_of(whole, z), HasSubstr("only the channels can be normalised"));
}

// The two exporters of PyTorch write GroupNorm as an InstanceNormalization of the groups.
TEST(ImportNorms, GroupNormalizationInPieces) {
  const auto with = [](const std::string& scale_of_groups, std::int64_t groups) {
    ModelMaker m = maker();
    const std::string x = m.node("Relu", {"input"});
    const auto of_groups = [&](const std::string& name, float value) {
      return m.reals(name, {groups}, std::vector<float>(static_cast<std::size_t>(groups), value));
    };
    std::string y = m.node("Reshape", {x, m.integers("shape", {0, groups, -1})});
    y = m.node("InstanceNormalization",
               {y, of_groups(scale_of_groups, scale_of_groups == "ones" ? 1 : 2), of_groups("zeros", 0)},
               {{"epsilon", 1e-3F}});
    y = m.node("Reshape", {y, m.node("Shape", {x})});
    y = m.node("Mul", {y, m.node("Unsqueeze", {weight(m), m.integers("behind", {1, 2})})});
    return finished(m, m.node("Add", {y, m.node("Unsqueeze", {bias(m), "behind"})}));
  };
  const ImportedModel model = with("ones", 3);
  const auto& norm = only_layer<SampleNormLayer>(model.graph);
  EXPECT_EQ(norm.over, NormOver::groups);
  EXPECT_EQ(norm.groups, 3);
  EXPECT_EQ(norm.epsilon, 1e-3F);
  EXPECT_EQ(model.graph.parameters()[0].name, "norm.weight");
  EXPECT_EQ(model.graph.parameters()[0].shape, Integers{kChannels});
  EXPECT_THROW((void)with("twos", 3), Error);
  // Opset 21 has an operator.
  ModelMaker m = maker();
  const std::string y = m.node("GroupNormalization", {m.node("Relu", {"input"}), weight(m), bias(m)},
                               {{"num_groups", std::int64_t{3}}, {"epsilon", 1e-3F}});
  const ImportedModel whole = finished(m, y);
  EXPECT_EQ(only_layer<SampleNormLayer>(whole.graph).groups, 3);
  EXPECT_EQ(whole.graph.parameters().size(), 4U);
}

TEST(ImportNorms, GroupsWithTheirOwnScalesAreRefused) {
  ModelMaker m = maker();
  const std::string y =
      m.node("GroupNormalization", {m.node("Relu", {"input"}), m.random("scale", {3}), m.random("shift", {3})},
             {{"num_groups", std::int64_t{3}}});
  EXPECT_THAT(error_of(m, y), HasSubstr("its scale has 3 elements, 6 are needed"));
  ModelMaker four = maker();
  const std::string z = four.node("GroupNormalization", {four.node("Relu", {"input"}), weight(four), bias(four)},
                                  {{"num_groups", std::int64_t{4}}});
  EXPECT_THAT(error_of(four, z), HasSubstr("6 channels cannot be normalised in 4 groups"));
}

TEST(ImportNorms, InstanceNormalizationWithAndWithoutParameters) {
  ModelMaker m = maker();
  const std::string y = m.node("InstanceNormalization", {m.node("Relu", {"input"}), weight(m), bias(m)});
  const Graph graph = finished(m, y).graph;
  EXPECT_EQ(only_layer<SampleNormLayer>(graph).groups, kChannels);
  EXPECT_FALSE(only_layer<SampleNormLayer>(graph).fixed_weight);
  ModelMaker bare = maker();
  const std::string ones = bare.constant("ones", {kChannels}, std::vector<float>(kChannels, 1));
  const std::string zeros = bare.constant("zeros", {kChannels}, std::vector<float>(kChannels, 0));
  const std::string z = bare.node("InstanceNormalization", {bare.node("Relu", {"input"}), ones, zeros});
  const Graph without = finished(bare, z).graph;
  EXPECT_TRUE(only_layer<SampleNormLayer>(without).fixed_weight);
  EXPECT_TRUE(only_layer<SampleNormLayer>(without).fixed_bias);
}

// ConvNeXt's linear layers between two permutations; their weights keep the shape [outputs, inputs].
TEST(ImportNorms, LinearLayersOfPositionsAreConvolutions) {
  ModelMaker m = maker();
  const std::string x = last(m, m.node("Relu", {"input"}));
  const std::string turned = m.node("Transpose", {m.random("pw.weight", {4, kChannels})}, {{"perm", Integers{1, 0}}});
  const std::string y = m.node("Add", {m.random("pw.bias", {4}), m.node("MatMul", {x, turned})});
  m.output(m.classifier(first(m, y), 24, 3));
  const ImportedModel model = m.imported();
  EXPECT_EQ(only_layer<ConvLayer>(model.graph).channels, 4);
  EXPECT_TRUE(only_layer<ConvLayer>(model.graph).bias);
  EXPECT_EQ(model.graph.parameters()[0].name, "pw.weight");
  EXPECT_EQ(model.graph.parameters()[0].shape, (Integers{4, kChannels}));
  EXPECT_EQ(model.graph.parameters()[1].name, "pw.bias");
}

TEST(ImportNorms, PRelusHaveOneSlopePerChannelOrOneForAll) {
  const auto with = [](const Integers& shape) {
    ModelMaker m = maker();
    const std::string slope = m.random("act.weight", {shape.front()});
    const std::string placed = m.node("Reshape", {slope, m.integers("shape", shape)});
    return finished(m, m.node("PRelu", {"input", placed}));
  };
  const ImportedModel channels = with({kChannels, 1, 1});
  EXPECT_FALSE(only_layer<PreluLayer>(channels.graph).shared);
  EXPECT_EQ(channels.graph.parameters()[0].name, "act.weight");
  EXPECT_EQ(channels.graph.parameters()[0].shape, Integers{kChannels});
  EXPECT_TRUE(only_layer<PreluLayer>(with({1, 1, 1}).graph).shared);
  EXPECT_THROW((void)with({3}), Error);
}

// What PyTorch's newer exporter writes for AdaptiveAvgPool2d(1) of an image whose channels are last in memory.
std::string gathered(ModelMaker& m, const std::string& x, std::int64_t channel_stride) {
  const auto number = [&](const std::string& name, std::int64_t value) {
    m.model.initializers[name] = OnnxTensor::of_integers({}, {value});
    return name;
  };
  const std::string samples = m.node("Gather", {m.node("Shape", {x}), number("zero", 0)}, {{"axis", std::int64_t{0}}});
  const auto term = [&](const std::string& size, std::int64_t stride, const Integers& others) {
    const std::string suffix = std::to_string(others[0]) + std::to_string(others[1]) + std::to_string(others[2]);
    const std::string range = m.node("Range", {"zero", size, number("one", 1)});
    const std::string product = m.node("Mul", {range, number("stride" + suffix, stride)});
    return m.node("Unsqueeze", {product, m.integers("axes" + suffix, others)});
  };
  std::string places = m.node("Add", {"zero", term(samples, kChannels, {1, 2, 3})});
  places = m.node("Add", {places, term(number("channels", kChannels), channel_stride, {0, 2, 3})});
  places = m.node("Add", {places, term("one", kChannels, {0, 1, 3})});
  places = m.node("Add", {places, term("one", kChannels, {0, 1, 2})});
  return m.node("Gather", {m.node("Reshape", {x, m.integers("flat", {-1})}), places}, {{"axis", std::int64_t{0}}});
}

TEST(ImportNorms, AGatherOfAllElementsInOrderIsNothing) {
  const auto with = [](bool gathers, std::int64_t stride) {
    ModelMaker m = maker();
    const std::string x = m.node("GlobalAveragePool", {m.node("Relu", {"input"})});
    m.output(m.classifier(gathers ? gathered(m, x, stride) : x, kChannels, 3));
    return logits(m.imported());
  };
  EXPECT_EQ(with(true, 1), with(false, 1));
  EXPECT_THROW((void)with(true, 2), Error);
}

}  // namespace
}  // namespace ddp
