// Which tensors of an ONNX file are trained, and their names: by kind and use, never by what they are called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "onnx/export.h"
#include "onnx/file/half_weights.h"
#include "onnx/import.h"
#include "support/errors.h"
#include "unit/onnx/model_maker.h"

namespace ddp {
namespace {

using Integers = ModelMaker::Integers;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kFile = "net.onnx";

std::vector<std::string> trained_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Parameter& p : graph.parameters()) {
    if (!p.fixed) names.push_back(p.name);
  }
  return names;
}

std::set<std::string> all_names(const Graph& graph) {
  std::set<std::string> names;
  for (const std::string& name : trained_names(graph)) names.insert(name);
  for (const Statistic& s : graph.statistics()) names.insert(s.name);
  for (const Constant& c : graph.constants()) names.insert(c.name);
  return names;
}

OnnxModel exported(const ImportedModel& model) {
  return export_onnx({model.graph, model.parameters, model.statistics, {}}, {});
}

ImportedModel back(const ImportedModel& model) { return import_onnx_bytes(to_bytes(exported(model)), kFile); }

std::vector<float> twice(float value) { return {value, value}; }

// A network of all uses of parameters, whose tensors are called by `name`.
ModelMaker with_names(const std::function<std::string(const std::string&)>& name) {
  ModelMaker m;
  m.model.producer = "pytorch";
  const auto fresh = [&](const std::string& what, float value) { return m.reals(name(what), {2}, twice(value)); };
  std::string x =
      m.node("Conv", {"input", m.random(name("conv.weight"), {2, 2, 1, 1}), m.random(name("conv.bias"), {2})});
  x = m.node("BatchNormalization",
             {x, fresh("bn.weight", 1), fresh("bn.bias", 0), fresh("bn.running_mean", 0), fresh("bn.running_var", 1)});
  x = m.node("InstanceNormalization", {x, fresh("in.weight", 1), fresh("in.bias", 0)});
  x = m.node("PRelu", {x, m.reals(name("act.weight"), {2, 1, 1}, twice(0.5F))});
  x = m.node("Mul", {x, m.reals(name("scale"), {2, 1, 1}, twice(1))});
  x = m.node("Relu", {x});
  x = m.node("Add", {x, m.reals(name("shift"), {1, 2, 1, 1}, twice(0))});
  x = m.node("Relu", {x});
  x = m.node("Conv", {x, m.random(name("last.weight"), {3, 2, 1, 1}), m.reals(name("last.bias"), {3}, {0, 0, 0})});
  x = m.node("GlobalAveragePool", {x});
  m.output(m.node("Gemm", {m.node("Flatten", {x}), m.random(name("fc.weight"), {3, 3}), m.random(name("fc.bias"), {3})},
                  {{"transB", std::int64_t{1}}}));
  return m;
}

TEST(ImportParameters, NoNameFreezesAndAllNamesSurvive) {
  const std::int64_t trained = with_names([](const std::string& n) { return n; }).imported().graph.trained_count();
  const auto prefixed = [](const std::string& prefix) { return [=](const std::string& n) { return prefix + n; }; };
  const auto numbered = [](const std::string& before, const std::string& behind) {
    return [=, count = 10](const std::string&) mutable { return before + std::to_string(count++) + behind; };
  };
  const std::vector<std::function<std::string(const std::string&)>> namings = {
      prefixed("new_"),       prefixed("val_"),        prefixed("const_"),
      prefixed("const."),     prefixed("_val_"),       prefixed("getitem"),
      prefixed("getitem_1."), prefixed("/"),           prefixed("a/b."),
      prefixed("a::b."),      prefixed("onnx::"),      prefixed("x:0."),
      prefixed("two words "), prefixed("\xC3\xA4."),   prefixed("_"),
      prefixed("__"),         numbered("", ""),        numbered("_", "_"),
      numbered("val_", ""),   numbered("onnx::a", ""), numbered("/Constant_", "_output_0")};
  for (const auto& naming : namings) {
    const ModelMaker m = with_names(naming);
    const ImportedModel model = m.imported();
    SCOPED_TRACE(m.model.initializers.begin()->first);
    EXPECT_EQ(model.graph.trained_count(), trained);
    EXPECT_THAT(model.constants, IsEmpty());
    std::set<std::string> names;
    for (const auto& [name, tensor] : m.model.initializers) names.insert(name);
    EXPECT_EQ(all_names(model.graph), names);
    const ImportedModel again = back(back(model));
    EXPECT_EQ(all_names(again.graph), names);
    EXPECT_EQ(again.graph.trained_count(), trained);
    EXPECT_EQ(again.parameters, model.parameters);
  }
}

TEST(ImportParameters, RunsOfOlderVersionsKeepTheirConstants) {
  const ModelMaker m = with_names([](const std::string& n) { return "new_" + n; });
  const ImportedModel model = import_onnx_bytes(m.bytes(), kFile, {.by_use = false});
  EXPECT_THAT(trained_names(model.graph), ElementsAre("conv.weight", "conv.bias", "PRelu_3.weight", "conv_2.weight",
                                                      "conv_2.bias", "gemm.weight", "gemm.bias"));
}

// Names that an exporter made are replaced, and those that no file of weights or terminal can have.
TEST(ImportParameters, NamesThatCannotBeKeptAreReplaced) {
  const std::map<std::string, std::string> replaced = {{"__metadata__", "metadata.weight"},
                                                       {"a\nb", "a_b.weight"},
                                                       {"a\x1b[31m", "a_31m.weight"},
                                                       {"\xFF\xFE", "gemm.weight"},
                                                       {"a\xC2\x85", "a.weight"},
                                                       {"\xED\xA0\x80", "gemm.weight"},
                                                       {"\x7F", "gemm.weight"}};
  for (const auto& [bad, name] : replaced) {
    ModelMaker m;
    m.output(m.node("Gemm", {m.node("Flatten", {"input"}), m.random(bad, {3, 72}), m.random("fc.bias", {3})},
                    {{"transB", std::int64_t{1}}}));
    m.model.nodes.back().name = m.model.nodes.back().outputs[0];
    EXPECT_THAT(trained_names(m.imported().graph), ElementsAre(name, "fc.bias"));
  }
  ModelMaker m;
  m.output(m.node(
      "Gemm", {m.node("Flatten", {"input"}), m.random("onnx::Gemm_12", {3, 72}), m.random("d/ReadVariableOp:0", {3})},
      {{"transB", std::int64_t{1}}}));
  m.model.nodes.back().name = "/net/fc/Gemm";
  EXPECT_THAT(trained_names(m.imported().graph), ElementsAre("net.fc.weight", "net.fc.bias"));
}

// What the exporter writes besides the tensors gets out of the way of their names.
TEST(ImportParameters, NamesMayBeThoseOfOtherValuesOfTheExport) {
  ModelMaker m;
  m.model.inputs[0].name = "image";
  const std::string bias = m.random("logits", {2});
  std::string x = m.node("Conv", {"image", m.random("input", {2, 2, 1, 1}), bias});
  x = m.node("Clip", {x, m.reals("zero", {}, {0}), m.reals("six", {}, {6})});
  x = m.node("Mul", {x, m.random("relu6.max", {2, 1, 1})});
  x = m.node("PRelu", {m.node("Relu", {x}), m.random("relu_3.out", {2, 1, 1})});
  x = m.node("Conv", {x, m.random("fc.weight.float", {2, 2, 1, 1}), m.random("fc.weight", {2})});
  m.output(m.node("Gemm", {m.node("Flatten", {x}), m.random("to_vector.out", {3, 72}), m.random("flatten.out", {3})},
                  {{"transB", std::int64_t{1}}}));
  const ImportedModel model = m.imported();
  const std::vector<double> wanted = logits_of(model);
  const ImportedModel again = back(model);
  EXPECT_EQ(trained_names(again.graph), trained_names(model.graph));
  EXPECT_EQ(logits_of(again), wanted);
  EXPECT_THAT(trained_names(again.graph), Contains("input"));
  OnnxModel half = exported(model);
  store_weights_as(half, "FLOAT16", all_names(model.graph));
  EXPECT_EQ(trained_names(import_onnx_bytes(to_bytes(half), kFile).graph), trained_names(model.graph));
}

// A name that two parameters want goes to the first; the other one's is still unique.
TEST(ImportParameters, SharedNamesStayUnique) {
  ModelMaker m;
  std::string x = m.node("Conv", {"input", m.random("w.weight", {2, 2, 1, 1})});
  x = m.node("Conv", {x, "w.weight"});
  x = m.node("Conv", {x, m.random("w_2.weight", {2, 2, 1, 1})});
  m.output(m.classifier(x, 72, 3));
  const std::vector<std::string> names = trained_names(m.imported().graph);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_THAT(names, Contains("w.weight"));
  EXPECT_THAT(names, Contains("w_2.weight"));
}

// Constant nodes are numbers of forward(), and affine=False; what is subtracted or a divisor is a buffer. The header names
// them, and the buffers are in exported weights, also after a round trip.
TEST(ImportParameters, ConstantsAreNamedAndBuffersComeBack) {
  ModelMaker m;
  m.model.producer = "pytorch";
  std::string x = m.node("Sub", {"input", m.random("mean", {1, 2, 1, 1})});
  x = m.node("Div", {x, m.random("std", {2, 1, 1}, 0.5F, 2)});
  x = m.node("Sub", {m.node("Tanh", {x}), "mean"});
  x = m.node("Mul", {m.node("Relu", {x}), m.constant("/Constant_output_0", {}, {0.5F})});
  x = m.node("BatchNormalization", {x, m.constant("ones", {2}, twice(1)), m.constant("zeros", {2}, twice(0)),
                                    m.random("bn.running_mean", {2}), m.random("bn.running_var", {2}, 0.5F, 2)});
  m.output(m.classifier(x, 72, 3));
  const ImportedModel model = m.imported();
  EXPECT_THAT(model.constants, ElementsAre("mean", "std", "/Constant_output_0", "ones", "zeros"));
  EXPECT_THAT(trained_names(model.graph), ElementsAre("fc.weight", "fc.bias"));
  ASSERT_EQ(model.graph.constants().size(), 2U);
  const ImportedModel again = back(back(model));
  EXPECT_THAT(trained_names(again.graph), ElementsAre("fc.weight", "fc.bias"));
  ASSERT_EQ(again.graph.constants().size(), 2U);
  EXPECT_EQ(again.graph.constants()[1].name, "std");
  EXPECT_EQ(again.graph.constants()[1].values, m.model.initializers.at("std").reals);
  EXPECT_EQ(again.graph.statistics()[0].name, "bn.running_mean");
  const std::vector<double> wanted = logits_of(model);
  const std::vector<double> logits = logits_of(again);
  for (std::size_t c = 0; c < 3; ++c) EXPECT_NEAR(logits[c], wanted[c], 1e-5);
}

// Some programs keep all weights in Constant nodes.
TEST(ImportParameters, WithoutInitializersConstantNodesAreParameters) {
  ModelMaker m;
  std::string x = m.node("Mul", {"input", m.constant("scale", {2, 1, 1}, twice(1))});
  x = m.node("InstanceNormalization",
             {x, m.constant("in.weight", {2}, twice(1)), m.constant("in.bias", {2}, twice(0))});
  m.output(m.node("Gemm", {m.node("Flatten", {x}), m.constant("fc.weight", {72, 3}, std::vector<float>(216, 0.1F))}));
  EXPECT_THAT(trained_names(m.imported().graph), ElementsAre("scale", "in.weight", "in.bias", "fc.weight"));
}

std::string field(int number, const std::string& bytes) {
  std::string text(1, static_cast<char>(number * 8 + 2));
  for (std::size_t rest = bytes.size();; rest /= 128) {
    text += static_cast<char>(rest % 128 + (rest >= 128 ? 128 : 0));
    if (rest < 128) break;
  }
  return text + bytes;
}

// What PyTorch's newer exporter writes about an initializer: metadata of a ValueInfoProto of the graph.
std::string kind_of(const std::string& name, const std::string& kind, bool persistent = true) {
  const std::string prefix = "pkg.torch.export.graph_signature.InputSpec.";
  const std::string metadata = field(4, field(1, prefix + "kind") + field(2, kind)) +
                               field(4, field(1, prefix + "persistent") + field(2, persistent ? "True" : "False"));
  return field(7, field(13, field(1, name) + metadata));
}

TEST(ImportParameters, KindsOfTheNewerExporterDecide) {
  ModelMaker m;
  m.model.producer = "pytorch";
  std::string x = m.node("Mul", {"input", m.random("buffer", {2, 1, 1})});
  x = m.node("Add", {m.node("Relu", {x}), m.random("temporary", {2, 1, 1})});
  x = m.node("Mul", {m.node("Relu", {x}), m.random("val_3", {2, 1, 1})});
  x = m.node("Mul", {m.node("Relu", {x}), m.reals("val_4", {}, {0.5F})});
  x = m.node("InstanceNormalization", {x, m.random("frozen", {2}), m.reals("in.bias", {2}, twice(0))});
  m.output(m.classifier(x, 72, 3));
  const std::string kinds = kind_of("buffer", "BUFFER") + kind_of("temporary", "BUFFER", false) +
                            kind_of("val_3", "PARAMETER") + kind_of("frozen", "BUFFER") +
                            kind_of("in.bias", "PARAMETER");
  const ImportedModel model = import_onnx_bytes(m.bytes() + kinds, kFile);
  EXPECT_THAT(trained_names(model.graph), ElementsAre("val_3", "in.bias", "fc.weight", "fc.bias"));
  EXPECT_THAT(model.constants, ElementsAre("buffer", "temporary", "val_4", "frozen"));
  ASSERT_EQ(model.graph.constants().size(), 2U);
  EXPECT_EQ(model.graph.constants()[0].name, "buffer");
  EXPECT_EQ(model.graph.constants()[1].name, "frozen");
  const std::vector<double> wanted = logits_of(model);
  const std::vector<double> logits = logits_of(back(model));
  for (std::size_t c = 0; c < 3; ++c) EXPECT_NEAR(logits[c], wanted[c], 1e-5);
}

TEST(ImportParameters, ParametersThatCannotBeTrainedAreRefused) {
  const auto refusal = [](const std::string& type, bool one, bool number) {
    ModelMaker m;
    std::string x = m.node("Relu", {"input"});
    if (number) x = m.node("Mul", {x, m.constant("half", {}, {0.5F})});
    x = m.node(type, {x, one ? m.reals("p", {1}, {2}) : m.random("p", {2, 1, 1}, 1, 2)});
    m.output(m.classifier(x, 72, 3));
    return error_text(ExitCode::usage,
                      [&] { (void)import_onnx_bytes(m.bytes() + (number ? "" : kind_of("p", "PARAMETER")), kFile); });
  };
  EXPECT_THAT(refusal("Mul", true, false), HasSubstr("'p' is one number for all channels"));
  EXPECT_THAT(refusal("Add", true, true), HasSubstr("'p' is one number for all channels"));
  EXPECT_THAT(refusal("Sub", false, false), HasSubstr("'p' is a parameter of the module that is subtracted"));
  EXPECT_THAT(refusal("Div", false, false), HasSubstr("'p' is a parameter of the module that is subtracted"));
  // A simplified file cannot tell.
  ModelMaker m;
  m.output(m.classifier(m.node("Mul", {"input", m.reals("p", {1}, {2})}), 72, 3));
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(m.imported().constants, ElementsAre("p"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("'p' is one number for all channels and stays constant"));
}

// Keras, as tf2onnx writes it, and after onnx.utils.extract_model, which changes the producer.
TEST(ImportParameters, TheProducerChangesNothing) {
  const auto imported = [](const std::string& producer) {
    ModelMaker m({-1, 6, 6, 2});
    m.model.producer = producer;
    const std::string scope = "StatefulPartitionedCall/model/";
    std::string x = m.node("Transpose", {"input"}, {{"perm", Integers{0, 3, 1, 2}}});
    x = m.node("Conv", {x, m.random(scope + "conv2d/Conv2D/ReadVariableOp:0", {4, 2, 1, 1})});
    x = m.node("Add", {x, m.random("const_fold_opt__12", {1, 4, 1, 1})});
    x = m.node("Flatten", {m.node("Relu", {x})});
    x = m.node("MatMul", {x, m.random(scope + "dense/MatMul/ReadVariableOp:0", {144, 3})});
    m.output(m.node("Add", {x, m.random(scope + "dense/BiasAdd/ReadVariableOp:0", {3})}));
    return m.imported();
  };
  const ImportedModel keras = imported("tf2onnx 1.16");
  EXPECT_EQ(keras.graph.trained_count(), 8 + 4 + 144 * 3 + 3);
  EXPECT_THAT(trained_names(keras.graph),
              ElementsAre("model.conv2d.weight", "model.conv2d.bias", "model.dense.weight", "model.dense.bias"));
  EXPECT_EQ(trained_names(imported("onnx.utils.extract_model").graph), trained_names(keras.graph));
  EXPECT_EQ(trained_names(back(keras).graph), trained_names(keras.graph));
}

// Each convolution is counted once, whatever has become of its batch normalisation.
TEST(ImportParameters, ConvolutionsWithoutNormalisationAreCountedOnce) {
  ModelMaker m;
  std::string x = "input";
  for (int i = 0; i < 3; ++i) {
    x = m.node("Conv", {x, m.random("onnx::Conv_" + std::to_string(10 + i), {2, 2, 1, 1}),
                        m.node("ConstantOfShape", {m.integers("count", {2})})});
  }
  m.output(m.classifier(m.node("Relu", {x}), 72, 3));
  ::testing::internal::CaptureStderr();
  (void)m.imported();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("3 of 3 convolutions"));
}

// The header shows foreign names without their control characters.
TEST(ImportParameters, NamesOfConstantsAreReadable) {
  ModelMaker m;
  m.output(m.classifier(m.node("Mul", {"input", m.constant("a\x1b[31m", {2, 1, 1}, twice(2))}), 72, 3));
  EXPECT_THAT(m.imported().constants, ElementsAre("a\\x1b[31m"));
}

}  // namespace
}  // namespace ddp
