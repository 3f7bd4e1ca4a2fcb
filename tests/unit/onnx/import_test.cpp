#include "onnx/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/types/half.h"
#include "onnx/export.h"
#include "support/graph_forward.h"
#include "support/graph_reference.h"
#include "unit/onnx/model_maker.h"
#include "unit/onnx/only_layer.h"

namespace ddp {
namespace {

using Integers = ModelMaker::Integers;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::vector<std::string> parameter_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Parameter& p : graph.parameters()) names.push_back(p.name);
  return names;
}

// First the weights of the ReLU, then its output with weights that make the logits equal the image.
TEST(ImportOnnx, KeepsWeightsStatisticsNamesAndMomentum) {
  ModelMaker m;
  std::string x = m.node("Conv", {"input", m.random("layer1.0.conv1.weight", {4, 1, 3, 3})},
                         {{"group", std::int64_t{2}}, {"pads", Integers{1, 1, 1, 1}}});
  x = m.node("BatchNormalization",
             {x, m.random("bn.weight", {4}), m.random("bn.bias", {4}), m.random("bn.running_mean", {4}),
              m.random("bn.running_var", {4}, 0.5F, 2)},
             {{"epsilon", 1e-3F}, {"momentum", 0.75F}});
  m.output(m.classifier(m.node("Relu", {x}), 4 * 36, 3));
  const ImportedModel model = m.imported();
  EXPECT_THAT(parameter_names(model.graph),
              ElementsAre("layer1.0.conv1.weight", "bn.weight", "bn.bias", "fc.weight", "fc.bias"));
  EXPECT_EQ(model.graph.statistics().at(1).name, "bn.running_var");
  EXPECT_EQ(model.graph.classes(), 3);
  EXPECT_EQ(only_layer<BatchNormLayer>(model.graph).momentum, 0.25F);
  EXPECT_EQ(only_layer<BatchNormLayer>(model.graph).epsilon, 1e-3F);
  std::vector<float> expected;
  for (const Parameter& p : model.graph.parameters()) {
    const std::vector<float>& values = m.model.initializers.at(p.name).reals;
    expected.insert(expected.end(), values.begin(), values.end());
    expected.resize(static_cast<std::size_t>(p.offset + p.flat_elements()));
  }
  EXPECT_EQ(model.parameters, expected);
  expected = m.model.initializers.at("bn.running_mean").reals;
  const std::vector<float>& variance = m.model.initializers.at("bn.running_var").reals;
  expected.insert(expected.end(), variance.begin(), variance.end());
  EXPECT_EQ(model.statistics, expected);
}

// The network agrees with the definitions; the tolerance covers sums of some hundred products in float32.
TEST(ImportOnnx, NetworkComputesWhatTheDefinitionsSay) {
  ModelMaker m({-1, 3, 12, 10});
  std::string x = m.node("Conv", {"input", m.random("a.weight", {8, 3, 3, 5}), m.random("a.bias", {8})},
                         {{"auto_pad", std::string("SAME_UPPER")}, {"strides", Integers{2, 2}}});
  x = m.node("MaxPool", {m.node("Relu", {x})},
             {{"kernel_shape", Integers{3, 3}}, {"strides", Integers{2, 2}}, {"ceil_mode", std::int64_t{1}}});
  x = m.node("LRN", {x}, {{"size", std::int64_t{3}}, {"alpha", 0.5F}, {"bias", 2.0F}});
  const std::string y = m.node("Conv", {x, m.random("b.weight", {8, 2, 1, 1})}, {{"group", std::int64_t{4}}});
  x = m.node("Sigmoid", {m.node("Add", {y, x})});
  x = m.node("AveragePool", {x}, {{"kernel_shape", Integers{2, 2}}, {"pads", Integers{0, 1, 1, 0}}});
  const Shape shape{8, 3, 2};
  m.output(m.classifier(x, shape.elements(), 5));
  const ImportedModel model = m.imported();
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(2 * 3 * 12 * 10));
  std::vector<float> images;
  for (std::uint8_t& pixel : pixels) {
    pixel = static_cast<std::uint8_t>(m.engine());
    images.push_back(static_cast<float>(pixel) / 255);
  }
  const std::vector<float> logits = forward_logits(model.graph, model.parameters, model.statistics, pixels, 2);
  GraphReference reference(model.graph, model.parameters, model.statistics);
  for (std::size_t n = 0; n < 2; ++n) {
    const std::vector<double> expected = reference.logits(std::span(images).subspan(n * 360, 360));
    for (std::size_t c = 0; c < 5; ++c) EXPECT_NEAR(logits[n * 5 + c], expected[c], 1e-5) << n << " " << c;
  }
}

// Exporters decompose GELU for opsets below 20 in various orders of factors.
TEST(ImportOnnx, GeluInPartsIsGelu) {
  for (const int order : {0, 1, 2, 3}) {
    ModelMaker m({-1, 2, 3, 3});
    const std::string x = m.node("Conv", {"input", m.random("a.weight", {4, 2, 1, 1}), m.random("a.bias", {4})});
    const std::string root = m.reals("root", {}, {1.41421354F});
    const std::string half = m.reals("half", {1}, {0.5F});
    const std::string scaled =
        order == 3 ? m.node("Mul", {m.reals("inverse", {}, {0.707106769F}), x}) : m.node("Div", {x, root});
    const std::string sum = m.node("Add", {m.node("Erf", {scaled}), m.reals("one", {}, {1})});
    std::string y;
    if (order == 0) y = m.node("Mul", {m.node("Mul", {x, sum}), half});
    if (order == 1) y = m.node("Mul", {m.node("Mul", {half, x}), sum});
    if (order == 2) y = m.node("Mul", {x, m.node("Mul", {sum, half})});
    if (order == 3) y = m.node("Mul", {sum, m.node("Div", {x, m.reals("two", {}, {2})})});
    m.output(m.classifier(y, 36, 3));
    const ImportedModel model = m.imported();
    EXPECT_EQ(only_layer<GeluSpec>(model.graph).form, GeluForm::exact) << order;
    EXPECT_EQ(model.graph.layers().size(), 5U) << order;
  }
}

// With another constant than 1/2, or with a node that something else reads, it is not GELU.
TEST(ImportOnnx, WhatResemblesGeluStaysUnsupported) {
  for (const bool shared : {false, true}) {
    ModelMaker m({-1, 2, 3, 3});
    const std::string x = m.node("Relu", {"input"});
    const std::string sum = m.node(
        "Add", {m.node("Erf", {m.node("Div", {x, m.reals("root", {}, {1.41421354F})})}), m.reals("one", {}, {1})});
    std::string y = m.node("Mul", {m.node("Mul", {x, sum}), m.reals("half", {}, {shared ? 0.5F : 0.4F})});
    if (shared) y = m.node("Add", {y, sum});
    m.output(m.classifier(y, 18, 3));
    EXPECT_THAT([&] { (void)m.imported(); }, testing::ThrowsMessage<Error>(testing::HasSubstr("Erf"))) << shared;
  }
}

TEST(ImportOnnx, GeluHasTwoForms) {
  for (const bool tanh : {false, true}) {
    ModelMaker m({-1, 2, 3, 3});
    m.model.opset = 20;
    const std::string y = m.node("Gelu", {"input"}, {{"approximate", std::string(tanh ? "tanh" : "none")}});
    m.output(m.classifier(y, 18, 3));
    EXPECT_EQ(only_layer<GeluSpec>(m.imported().graph).form, tanh ? GeluForm::tanh : GeluForm::exact);
  }
}

// As exported by Keras: channels last, with a Transpose of the input and another before Flatten.
TEST(ImportOnnx, ChannelsLastModelsComputeTheSame) {
  ModelMaker last({-1, 4, 3, 2});
  last.model.producer = "tf2onnx";
  std::string x = last.node("Transpose", {"input"}, {{"perm", Integers{0, 3, 1, 2}}});
  x = last.node("Conv", {x, last.random("conv/kernel", {3, 2, 1, 1})});
  x = last.node("Add", {x, last.random("conv/bias", {1, 3, 1, 1})});
  x = last.node("Relu", {last.node("Transpose", {x}, {{"perm", Integers{0, 2, 3, 1}}})});
  x = last.node("Reshape", {x, last.integers("shape", {-1, 36})});
  x = last.node("MatMul", {x, last.random("model/dense/MatMul/ReadVariableOp:0", {36, 5})});
  x = last.node("Add", {x, last.random("dense_bias", {5})});
  last.output(last.node("Softmax", {x}));
  const ImportedModel model = last.imported();
  EXPECT_EQ(model.graph.shape(0), (Shape{2, 4, 3}));
  EXPECT_THAT(parameter_names(model.graph),
              ElementsAre("conv.weight", "conv.bias", "model.dense.weight", "model.dense.bias"));
  std::vector<float> image(24);  // [C][H][W]
  std::iota(image.begin(), image.end(), -7.0F);
  const std::vector<double> logits = GraphReference(model.graph, model.parameters, model.statistics).logits(image);
  const auto at = [&](const char* name, std::size_t i) { return last.model.initializers.at(name).reals[i]; };
  for (std::size_t o = 0; o < 5; ++o) {
    double sum = at("dense_bias", o);
    for (std::size_t p = 0; p < 12; ++p) {
      for (std::size_t c = 0; c < 3; ++c) {
        double value = at("conv/bias", c);
        for (std::size_t i = 0; i < 2; ++i) value += double{at("conv/kernel", c * 2 + i)} * image[i * 12 + p];
        sum += std::max(value, 0.0) * at("model/dense/MatMul/ReadVariableOp:0", (p * 3 + c) * 5 + o);
      }
    }
    EXPECT_NEAR(logits[o], sum, 1e-9 * std::abs(sum) + 1e-9);
  }
}

// The logits agree up to rounding of the weights to float32, also after an export.
void expect_same_logits(const ImportedModel& model, const ImportedModel& other) {
  const std::vector<double> wanted = logits_of(other);
  const OnnxModel exported = export_onnx({model.graph, model.parameters, model.statistics, {}}, {});
  for (const std::vector<double>& logits :
       {logits_of(model), logits_of(import_onnx_bytes(to_bytes(exported), "back.onnx"))}) {
    ASSERT_EQ(logits.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(logits[i], wanted[i], 1e-5 * std::abs(wanted[i]) + 1e-5);
  }
}

// The shape with which [channels] values broadcast to [N, channels, height, width].
Integers beside_image(std::int64_t channels) { return {1, channels, 1, 1}; }

// The Mul and Add that inference exporters leave equal batch normalisation with mean 0 and variance 1.
TEST(ImportOnnx, ScalesAndShiftsOfChannels) {
  const auto imported = [](const std::string& where, bool norm) {
    ModelMaker m;
    const auto affine = [&](const std::string& from, const std::string& place, const Integers& shape) {
      if (place != where) return from;
      const std::int64_t channels = std::max(shape[0], shape.size() > 1 ? shape[1] : 1);
      // The same values in both models, in different shapes.
      const Integers own = norm ? Integers{channels} : shape;
      m.random("s", own, 0.5F, 2);
      m.random("b", own);
      if (!norm) return m.node("Add", {m.node("Mul", {"s", from}), "b"});
      m.reals("mean", {channels}, std::vector<float>(static_cast<std::size_t>(channels), 0));
      m.reals("variance", {channels}, std::vector<float>(static_cast<std::size_t>(channels), 1));
      return m.node("BatchNormalization", {from, "s", "b", "mean", "variance"}, {{"epsilon", 1e-9F}});
    };
    std::string x = m.node("Conv", {"input", m.random("conv.weight", {4, 2, 3, 3}), m.random("conv.bias", {4})});
    x = m.node("Relu", {affine(x, "conv", beside_image(4))});
    x = affine(x, "image", beside_image(4));
    x = m.node("Conv", {x, m.random("w2", {4, 1, 3, 3})}, {{"group", std::int64_t{4}}, {"pads", Integers{1, 1, 1, 1}}});
    x = m.node("Flatten", {affine(x, "depthwise", beside_image(4))});
    x = m.node("Add", {m.node("MatMul", {x, m.random("w3", {64, 5})}), m.random("b3", {5})});
    x = affine(m.node("Tanh", {affine(x, "product", {5})}), "vector", {1, 5});
    m.output(m.node("MatMul", {x, m.random("w4", {5, 3})}));
    return m.imported();
  };
  for (const std::string where : {"conv", "image", "depthwise", "product", "vector"}) {
    SCOPED_TRACE(where);
    const ImportedModel model = imported(where, false);
    expect_same_logits(model, imported(where, true));
    EXPECT_EQ(model.graph.statistic_count(), 0);
    EXPECT_EQ(model.graph.layers().size(), imported("nowhere", false).graph.layers().size() + 1);
    // The module's parameters keep their names and shapes.
    const auto named = [&](const std::string& name) {
      const auto& all = model.graph.parameters();
      return std::find_if(all.begin(), all.end(), [&](const Parameter& p) { return p.name == name; });
    };
    const bool vector = where == "product" || where == "vector";
    const Integers shape = where == "product" ? Integers{5} : vector ? Integers{1, 5} : beside_image(4);
    for (const char* name : {"s", "b"}) {
      ASSERT_NE(named(name), model.graph.parameters().end());
      EXPECT_EQ(named(name)->shape, shape);
      EXPECT_FALSE(named(name)->fixed);
    }
  }
}

TEST(ImportOnnx, ScalesAndShiftsWithChannelsLast) {
  const auto imported = [](bool before, bool image, bool vector) {
    ModelMaker m({-1, 4, 3, 2});
    std::string x = m.node("Transpose", {"input"}, {{"perm", Integers{0, 3, 1, 2}}});
    x = m.node("Relu", {m.node("Conv", {x, m.random("w", {3, 2, 1, 1})})});
    m.random("s", {3}, 0.5F, 2);
    m.random("b", {3});
    OnnxTensor& s = m.model.initializers.at("s");
    OnnxTensor& b = m.model.initializers.at("b");
    if (before) {
      s.shape = b.shape = {3, 1, 1};
      x = m.node("Add", {m.node("Mul", {x, "s"}), "b"});
    }
    x = m.node("Transpose", {x}, {{"perm", Integers{0, 2, 3, 1}}});
    if (image) x = m.node("Add", {"b", m.node("Mul", {x, "s"})});
    x = m.node("Reshape", {x, m.integers("shape", {-1, 36})});
    if (vector) {
      s.shape = b.shape = {36};
      for (std::size_t i = 3; i < 36; ++i) {
        s.reals.push_back(s.reals[i - 3]);
        b.reals.push_back(b.reals[i - 3]);
      }
      x = m.node("Add", {m.node("Mul", {x, "s"}), "b"});
    }
    m.output(m.node("MatMul", {x, m.random("w2", {36, 5})}));
    return m.imported();
  };
  const ImportedModel wanted = imported(true, false, false);
  expect_same_logits(imported(false, true, false), wanted);
  expect_same_logits(imported(false, false, true), wanted);
}

// Without the batch normalisation that PyTorch's default export removes, the model trains differently.
TEST(ImportOnnx, SaysWhereBatchNormalizationIsMissing) {
  const auto said = [](bool bias, bool norm) {
    ModelMaker m;
    std::vector<std::string> inputs = {"input", m.random("conv.weight", {4, 2, 3, 3})};
    if (bias) inputs.push_back(m.random("conv.bias", {4}));
    std::string x = m.node("Conv", inputs);
    if (norm) {
      x = m.node("BatchNormalization", {x, m.random("bn.weight", {4}), m.random("bn.bias", {4}),
                                        m.random("bn.running_mean", {4}), m.random("bn.running_var", {4}, 0.5F, 2)});
    }
    m.output(m.classifier(m.node("Relu", {x}), 64, 3));
    ::testing::internal::CaptureStderr();
    (void)m.imported();
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said(false, false), AllOf(HasSubstr("1 of 1 convolutions have neither a bias nor batch normalisation"),
                                        HasSubstr("docs/onnx.md has the calls that keep it")));
  EXPECT_EQ(said(true, false), "");
  EXPECT_EQ(said(false, true), "");
}

// A constant in forward(): it does not change the weights and is not a parameter.
TEST(ImportOnnx, ConstantsStayOutOfWeights) {
  const auto imported = [](const std::string& type, bool first, bool scalar) {
    ModelMaker m;
    m.model.producer = "pytorch";
    const std::string x = m.classifier("input", 72, 3);
    const std::string constant =
        scalar ? m.constant("val_1", {}, {0.125F}) : m.constant("/Constant_output_0", {3}, {0.5F, -2.0F, 4.0F});
    m.output(m.node(type, first ? std::vector{constant, x} : std::vector{x, constant}));
    return m.imported();
  };
  ModelMaker plain;
  plain.output(plain.classifier("input", 72, 3));
  const ImportedModel wanted = plain.imported();
  const std::vector<double> before = logits_of(wanted);
  const auto check = [&](const std::string& type, bool first, const auto& expected) {
    for (const bool scalar : {true, false}) {
      SCOPED_TRACE(type + (scalar ? " of one number" : " of one a channel"));
      const ImportedModel model = imported(type, first, scalar);
      EXPECT_THAT(std::vector<float>(model.parameters.begin(), model.parameters.begin() + wanted.graph.flat_elements()),
                  ElementsAreArray(wanted.parameters));
      EXPECT_EQ(model.graph.trained_count(), wanted.graph.parameter_count());
      const OnnxModel exported = export_onnx({model.graph, model.parameters, model.statistics, {}}, {});
      const ImportedModel back = import_onnx_bytes(to_bytes(exported), "back.onnx");
      EXPECT_EQ(back.graph.trained_count(), wanted.graph.parameter_count());
      for (const ImportedModel* each : {&model, &back}) {
        const std::vector<double> logits = logits_of(*each);
        for (std::size_t c = 0; c < 3; ++c) {
          const double number = scalar ? 0.125 : std::vector{0.5, -2.0, 4.0}[c];
          EXPECT_NEAR(logits[c], expected(before[c], number), 1e-5);
        }
      }
    }
  };
  check("Mul", false, [](double x, double c) { return x * c; });
  check("Mul", true, [](double x, double c) { return x * c; });
  check("Add", false, [](double x, double c) { return x + c; });
  check("Sub", false, [](double x, double c) { return x - c; });
  check("Sub", true, [](double x, double c) { return c - x; });
  check("Div", false, [](double x, double c) { return x / c; });
}

// (x - mean) / deviation on the image, from buffers: one layer without trainable parameters; the buffers keep their
// names.
TEST(ImportOnnx, BuffersAreConstantsWithNames) {
  ModelMaker m;
  m.model.producer = "pytorch";
  std::string x = m.node("Sub", {"input", m.random("mean", {1, 2, 1, 1})});
  x = m.node("Div", {x, m.random("std", {2, 1, 1}, 0.5F, 2)});
  m.output(m.classifier(x, 72, 3));
  const ImportedModel model = m.imported();
  EXPECT_EQ(model.graph.layers().size(), 4U);
  EXPECT_EQ(model.graph.trained_count(), 72 * 3 + 3);
  ASSERT_EQ(model.graph.constants().size(), 2U);
  EXPECT_EQ(model.graph.constants()[1].name, "std");
  EXPECT_EQ(model.graph.constants()[1].values, m.model.initializers.at("std").reals);
}

// PyTorch's older exporter deduplicates equal tensors.
TEST(ImportOnnx, SharedZerosAreBiasesOfTheirOwnNames) {
  ModelMaker m;
  m.model.producer = "pytorch";
  m.reals("conv.bias", {2}, {0, 0});
  std::string x = m.node("Conv", {"input", m.random("conv.weight", {2, 2, 1, 1}), "conv.bias"});
  const auto same = [&](const std::string& of, const std::string& name) {
    m.model.nodes.push_back({"Identity_" + name, "Identity", {of}, {name}, {}});
    return name;
  };
  x = m.node("Conv", {x, same("conv.weight", "conv2.weight"), same("conv.bias", "conv2.bias")});
  m.reals("bn.running_mean", {2}, {0, 0});
  m.reals("bn.running_var", {2}, {1, 1});
  m.reals("bn.weight", {2}, {1, 1});
  x = m.node("BatchNormalization", {x, "bn.weight", same("conv.bias", "bn.bias"), "bn.running_mean", "bn.running_var"});
  x = m.node("BatchNormalization",
             {x, same("bn.weight", "bn2.weight"), same("conv.bias", "bn2.bias"),
              same("bn.running_mean", "bn2.running_mean"), same("bn.running_var", "bn2.running_var")});
  m.output(m.classifier(x, 72, 3));
  EXPECT_THAT(parameter_names(m.imported().graph),
              ElementsAre("conv.weight", "conv.bias", "conv2.weight", "conv2.bias", "bn.weight", "bn.bias",
                          "bn2.weight", "bn2.bias", "fc.weight", "fc.bias"));
  // Zeros that an exporter generates for a module without a bias are not a bias.
  ModelMaker none;
  none.model.producer = "pytorch";
  const std::string zeros = none.node("ConstantOfShape", {none.integers("val_1", {2})});
  x = none.node("Conv", {"input", none.random("conv.weight", {2, 2, 1, 1}), zeros});
  none.output(none.classifier(x, 72, 3));
  EXPECT_THAT(parameter_names(none.imported().graph), ElementsAre("conv.weight", "fc.weight", "fc.bias"));
}

// BatchNorm2d(affine=False) has no parameters.
TEST(ImportOnnx, BatchNormWithoutParametersHasNone) {
  ModelMaker m;
  m.model.producer = "pytorch";
  const std::string ones = m.constant("/bn/Constant_output_0", {2}, {1, 1});
  const std::string zeros = m.constant("/bn/Constant_1_output_0", {2}, {0, 0});
  const std::string x = m.node("BatchNormalization", {"input", ones, zeros, m.random("bn.running_mean", {2}),
                                                      m.random("bn.running_var", {2}, 0.5F, 2)});
  m.output(m.classifier(x, 72, 3));
  const ImportedModel model = m.imported();
  EXPECT_EQ(model.graph.trained_count(), 72 * 3 + 3);
  EXPECT_EQ(model.graph.statistics().at(0).name, "bn.running_mean");
  const OnnxModel exported = export_onnx({model.graph, model.parameters, model.statistics, {}}, {});
  EXPECT_EQ(import_onnx_bytes(to_bytes(exported), "back.onnx").graph.trained_count(), 72 * 3 + 3);
}

// A channels-last flatten keeps the column order of the following weights, so weight files stay valid.
TEST(ImportOnnx, ChannelsLastFlattenKeepsTheOrderOfWeights) {
  ModelMaker m;
  m.model.producer = "pytorch";
  std::string x = m.node("Relu", {m.node("Conv", {"input", m.random("conv.weight", {3, 2, 1, 1})})});
  x = m.node("Transpose", {x}, {{"perm", Integers{0, 2, 3, 1}}});
  m.output(m.classifier(x, 108, 4));
  const ImportedModel model = m.imported();
  const std::vector<float>& weight = m.model.initializers.at("fc.weight").reals;
  EXPECT_TRUE(
      std::equal(weight.begin(), weight.end(), model.parameters.begin() + model.graph.parameters().at(1).offset));
  std::vector<std::uint8_t> pixels(72);
  std::vector<float> image;
  for (std::uint8_t& pixel : pixels) {
    pixel = static_cast<std::uint8_t>(m.engine());
    image.push_back(static_cast<float>(pixel) / 255);
  }
  const std::vector<double> wanted = GraphReference(model.graph, model.parameters, model.statistics).logits(image);
  const std::vector<float> logits = forward_logits(model.graph, model.parameters, model.statistics, pixels, 1);
  for (std::size_t c = 0; c < 4; ++c) EXPECT_NEAR(logits[c], wanted[c], 1e-5);
  expect_same_logits(model, model);
}

TEST(ImportOnnx, ReshapeByTheBatchSizeIsAFlatten) {
  ModelMaker m;
  const std::string n = m.node("Gather", {m.node("Shape", {"input"}), m.integers("zero", {0})});
  const std::string shape = m.node("Concat", {n, m.integers("rest", {-1})}, {{"axis", std::int64_t{0}}});
  const std::string x = m.node("Reshape", {m.node("Tanh", {"input"}), shape});
  m.output(m.node("Gemm", {x, m.random("w", {72, 4})}));
  const ImportedModel model = m.imported();
  EXPECT_EQ(model.graph.classes(), 4);
  const OnnxTensor& w = m.model.initializers.at("w");
  EXPECT_EQ(model.parameters[1], w.reals[4]);  // weight [outputs][inputs]
}

TEST(ImportOnnx, ZerosAroundAnImageJoinTheNextWindow) {
  ModelMaker m;
  std::string x = m.node("Pad", {"input", m.integers("pads", {0, 0, 1, 2, 0, 0, 3, 0})});
  x = m.node("Conv", {x, m.random("w", {1, 2, 3, 3})}, {{"pads", Integers{0, 0, 1, 1}}});
  m.output(m.classifier(x, 9 * 7, 2));
  const auto conv = only_layer<ConvLayer>(m.imported().graph);
  EXPECT_EQ(conv.window.padding, (Padding2d{1, 2, 4, 1}));
}

TEST(ImportOnnx, AveragesCountTheRightElements) {
  const auto imported = [](const ModelMaker::Attributes& more) {
    ModelMaker m({-1, 1, 5, 5});
    ModelMaker::Attributes attributes = more;
    attributes["kernel_shape"] = Integers{2, 2};
    attributes["strides"] = Integers{2, 2};
    m.output(m.classifier(m.node("AveragePool", {"input"}, attributes), 9, 2));
    return only_layer<PoolLayer>(m.imported().graph);
  };
  EXPECT_FALSE(imported({{"pads", Integers{1, 1, 0, 0}}}).count_padding);
  EXPECT_TRUE(imported({{"pads", Integers{1, 1, 0, 0}}, {"count_include_pad", std::int64_t{1}}}).count_padding);
  const PoolLayer up = imported({{"ceil_mode", std::int64_t{1}}, {"count_include_pad", std::int64_t{1}}});
  EXPECT_FALSE(up.count_padding);
  EXPECT_EQ(up.window.padding.bottom, 1);
}

TEST(ImportOnnx, NodesInAnyOrderAndNamesTwice) {
  ModelMaker m;
  const std::string a = m.node("Conv", {"input", m.random("w", {2, 2, 1, 1})});
  const std::string b = m.node("Conv", {a, "w"});
  m.output(m.classifier(b, 72, 2));
  std::swap(m.model.nodes[0], m.model.nodes[1]);
  EXPECT_THAT(parameter_names(m.imported().graph), ElementsAre("w", "conv_2.weight", "fc.weight", "fc.bias"));
}

TEST(ImportOnnx, HalfPrecisionNumbersAreExact) {
  EXPECT_EQ(half_to_float(0x3c00), 1.0F);
  EXPECT_EQ(half_to_float(0xc500), -5.0F);
  EXPECT_EQ(half_to_float(0x7bff), 65504.0F);
  EXPECT_EQ(half_to_float(0x0001), std::ldexp(1.0F, -24));
  EXPECT_EQ(half_to_float(0x83ff), -std::ldexp(1023.0F, -24));
  EXPECT_EQ(half_to_float(0x0400), std::ldexp(1.0F, -14));
  EXPECT_TRUE(std::isinf(half_to_float(0x7c00)) && std::isnan(half_to_float(0x7c01)));
  EXPECT_EQ(bfloat16_to_float(0x4049), 3.140625F);
}

}  // namespace
}  // namespace ddp
