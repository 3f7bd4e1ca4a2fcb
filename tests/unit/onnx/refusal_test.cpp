// Models that cannot be trained and invalid files: one line each that says what and where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>

#include "support/errors.h"
#include "support/temporary_folder.h"
#include "unit/onnx/model_maker.h"

namespace ddp {
namespace {

using Integers = ModelMaker::Integers;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const ModelMaker& maker, ExitCode code = ExitCode::usage) {
  return error_text(code, [&] { maker.imported(); });
}

// The error of a valid model with one extra node between the image and the classifier.
std::string refusal_of(const std::string& type, std::vector<std::string> more,
                       const ModelMaker::Attributes& attributes = {}) {
  ModelMaker m;
  m.random("w", {2, 2, 3, 3});
  m.integers("pads", {0, 0, 9, 9, 0, 0, 9, 9});
  m.random("scale", {2}, 0.5F, 1);
  m.random("one", {});
  m.reals("zero", {}, {0});
  more.insert(more.begin(), "input");
  m.output(m.classifier(m.node(type, more, attributes), 72, 2));
  return refusal(m);
}

TEST(OnnxRefusal, NamesAllUnknownOperatorsAsInPyTorch) {
  ModelMaker m;
  const std::string x = m.node("Selu", {m.node("Relu", {"input"})});
  m.output(m.classifier(m.node("Celu", {x}), 72, 2));
  EXPECT_THAT(refusal(m), AllOf(HasSubstr("test.onnx: it has operators that are not supported: "),
                                HasSubstr("Selu (nn.SELU in PyTorch) at node 'Selu_1'"),
                                HasSubstr("Celu (nn.CELU in PyTorch) at node"),
                                HasSubstr("supported are AdaptiveAveragePool, Add, "), HasSubstr("Conv")));
}

// The loss has a softmax, so a second one in front of it would be a mistake.
TEST(OnnxRefusal, ASoftmaxIsALayerOnlyInTheMiddle) {
  const auto ends_with = [](const std::string& type, bool passes) {
    ModelMaker m;
    std::string x = m.node(type, {m.classifier("input", 72, 2)}, {{"axis", std::int64_t{1}}});
    x = passes ? m.node("Identity", {x}) : m.node("Relu", {m.node("Flatten", {x})});
    m.output(passes ? x : m.node("Flatten", {x}));
    return m;
  };
  EXPECT_EQ(ends_with("Softmax", true).imported().graph.layers().size(), 3U);
  EXPECT_EQ(ends_with("LogSoftmax", true).imported().graph.layers().size(), 3U);
  EXPECT_EQ(ends_with("Softmax", false).imported().graph.classes(), 2);
  EXPECT_THAT(refusal(ends_with("LogSoftmax", false)), HasSubstr("supported only at the end"));
  ModelMaker flattened;
  flattened.output(flattened.node("Flatten", {flattened.node("Softmax", {flattened.classifier("input", 72, 2)})}));
  EXPECT_THAT(refusal(flattened), HasSubstr("reads a Softmax, which is supported only in the middle or as the last"));
  // Before opset 13 this is over all channels and positions together.
  ModelMaker old;
  old.model.opset = 12;
  old.output(old.classifier(old.node("Softmax", {"input"}), 72, 2));
  EXPECT_THAT(refusal(old), HasSubstr("not over the classes or channels"));
}

TEST(OnnxRefusal, UnknownOperatorThatNothingReadsIsNoMatter) {
  ModelMaker m;
  m.node("Selu", {"input"});
  m.output(m.classifier("input", 72, 2));
  EXPECT_EQ(m.imported().graph.classes(), 2);
}

TEST(OnnxRefusal, OutputsThatNoLayerMakesAreNamed) {
  ModelMaker m;
  m.classifier("input", 72, 2);
  m.model.nodes.back().outputs = {"first", "second"};
  m.output("second");
  EXPECT_THAT(refusal(m), HasSubstr("its output 'second' is the second output of a node"));
  // A layer of which only the shape is used would be computed, but have no gradient.
  ModelMaker shape;
  const std::string logits = shape.node("Tanh", {shape.classifier("input", 72, 2)});
  const std::string extents = shape.node("Shape", {shape.node("Relu", {"input"})}, {{"end", std::int64_t{1}}});
  const std::string target = shape.node("Concat", {extents, shape.integers("two", {2})}, {{"axis", std::int64_t{0}}});
  shape.output(shape.node("Reshape", {logits, target}));
  EXPECT_THAT(refusal(shape), HasSubstr("only the shape of the output of its layer 'relu' is used"));
}

// A file of a few hundred bytes must not allocate gigabytes.
TEST(OnnxRefusal, ComputedConstantsHaveLimits) {
  ModelMaker wide;
  wide.integers("column", {1 << 15, 1});
  wide.integers("row", {1, 1 << 15});
  const std::string sum =
      wide.node("Add", {wide.node("ConstantOfShape", {"column"}), wide.node("ConstantOfShape", {"row"})});
  wide.output(wide.node("MatMul", {wide.node("Flatten", {"input"}), sum}));
  EXPECT_THAT(refusal(wide), HasSubstr("it computes a constant of 1073741824 elements"));
  ModelMaker many;
  many.integers("shape", {1 << 20});
  std::string last = many.node("ConstantOfShape", {"shape"});
  for (int i = 0; i < 20; ++i) last = many.node("Identity", {last});
  many.output(many.node("MatMul", {many.node("Flatten", {"input"}), last}));
  EXPECT_THAT(refusal(many), HasSubstr("far more weights than the file holds"));
}

TEST(OnnxRefusal, WhatIsNotSupportedIsSaid) {
  EXPECT_THAT(refusal_of("Conv", {"w"}, {{"dilations", Integers{0, 2}}}),
              HasSubstr("its dilations are not two numbers"));
  EXPECT_THAT(refusal_of("Conv", {"w"}, {{"strides", Integers{2}}}),
              HasSubstr("its strides are not two numbers from 1"));
  EXPECT_THAT(refusal_of("ConvTranspose", {"w"}, {{"output_shape", Integers{5}}}),
              HasSubstr("its output_shape is not two numbers"));
  EXPECT_THAT(refusal_of("ConvTranspose", {"w"}, {{"output_shape", Integers{5, 0}}}),
              HasSubstr("its output_shape of 5x0 is invalid"));
  EXPECT_THAT(refusal_of("Pad", {"pads"}, {{"mode", std::string("wrap")}}), HasSubstr("mode is 'wrap'"));
  EXPECT_THAT(refusal_of("Pad", {"pads"}, {{"mode", std::string("reflect")}}), HasSubstr("smaller than the image"));
  EXPECT_THAT(refusal_of("Conv", {"w"}, {{"group", std::int64_t{2}}}), HasSubstr("channels per group"));
  EXPECT_THAT(refusal_of("Conv", {"w"}, {{"pads", Integers{-1, 0, 0, 0}}}), HasSubstr("pads"));
  EXPECT_THAT(refusal_of("Conv", {"w"}, {{"pads", std::int64_t{1}}}), HasSubstr("'pads' does not have the type"));
  EXPECT_THAT(refusal_of("Conv", {"input"}), HasSubstr("computed from the image"));
  EXPECT_THAT(refusal_of("Conv", {}), HasSubstr("its weights"));
  EXPECT_THAT(refusal_of("Clip", {}, {{"min", -1.0F}, {"max", 1.0F}}), HasSubstr("clips to -1..1"));
  EXPECT_THAT(refusal_of("MaxPool", {}, {{"kernel_shape", Integers{9, 9}}}), HasSubstr("9x9 window does not fit"));
  EXPECT_THAT(refusal_of("MaxPool", {}, {{"kernel_shape", Integers{2, 2}}, {"pads", Integers{2, 2, 2, 2}}}),
              HasSubstr("padding is as large"));
  EXPECT_THAT(refusal_of("AveragePool", {},
                         {{"kernel_shape", Integers{3, 3}},
                          {"pads", Integers{1, 1, 1, 1}},
                          {"strides", Integers{2, 2}},
                          {"ceil_mode", std::int64_t{1}},
                          {"count_include_pad", std::int64_t{1}}}),
              HasSubstr("zeros that count"));
  EXPECT_THAT(refusal_of("LRN", {}, {{"size", std::int64_t{4}}}), HasSubstr("odd number"));
  EXPECT_THAT(refusal_of("Dropout", {}, {{"ratio", 1.5F}}), HasSubstr("dropout with rate 1.5"));
  EXPECT_THAT(refusal_of("Softmax", {}), HasSubstr("not over the classes"));
  EXPECT_THAT(refusal_of("Add", {"input"}), HasSubstr("with itself"));
  EXPECT_THAT(refusal_of("Mul", {"input"}), HasSubstr("with itself"));
  EXPECT_THAT(refusal_of("Mul", {"w"}), HasSubstr("one number per channel"));
  EXPECT_THAT(refusal_of("Div", {"zero"}), HasSubstr("divides by 0"));
  EXPECT_THAT(refusal_of("Concat", {"input"}, {{"axis", std::int64_t{2}}}),
              HasSubstr("only the channels can be joined"));
  EXPECT_THAT(refusal_of("Split", {}, {{"axis", std::int64_t{3}}}), HasSubstr("only the channels can be split"));
  EXPECT_THAT(refusal_of("Split", {}, {{"axis", std::int64_t{1}}, {"split", Integers{1}}}), HasSubstr("do not divide"));
  EXPECT_THAT(refusal_of("Slice", {}, {{"axes", Integers{2}}, {"starts", Integers{1}}, {"ends", Integers{9}}}),
              HasSubstr("only the channels can be sliced"));
  EXPECT_THAT(refusal_of("Slice", {}, {{"axes", Integers{1}}, {"starts", Integers{1}}, {"ends", Integers{1}}}),
              HasSubstr("it selects no channels"));
  EXPECT_THAT(refusal_of("HardSigmoid", {}), HasSubstr("its alpha and beta are 0.2 and 0.5"));
  EXPECT_THAT(refusal_of("Swish", {}, {{"alpha", 2.0F}}), HasSubstr("its alpha is 2"));
  EXPECT_THAT(refusal_of("Flatten", {}, {{"axis", std::int64_t{2}}}), HasSubstr("axis is 2"));
  EXPECT_THAT(refusal_of("Transpose", {}, {{"perm", Integers{0, 1, 3, 2}}}), HasSubstr("only the order of channels"));
  EXPECT_THAT(refusal_of("BatchNormalization", {"scale", "scale", "scale"}), HasSubstr("missing"));
  EXPECT_THAT(refusal_of("BatchNormalization", {"w", "scale", "scale", "scale"}),
              HasSubstr("36 elements, 2 are needed"));
}

TEST(OnnxRefusal, InputsAndOutputs) {
  const auto with_input = [](const OnnxValue& input) {
    ModelMaker m;
    m.model.inputs = {input};
    m.output(m.classifier(input.name, 72, 2));
    return refusal(m);
  };
  EXPECT_THAT(with_input({"x", "UINT8", true, {-1, 2, 6, 6}, ""}), HasSubstr("of type UINT8"));
  EXPECT_THAT(with_input({"x", "FLOAT", true, {-1, 2, -1, -1}, ""}), HasSubstr("[?, 2, ?, ?]; only the number"));
  EXPECT_THAT(with_input({"x", "FLOAT", true, {-1, 72}, ""}), HasSubstr("[?, 72]; images"));
  ModelMaker two;
  two.model.inputs.push_back({"more", "FLOAT", true, {-1, 2, 6, 6}, ""});
  two.output(two.classifier("input", 72, 2));
  EXPECT_THAT(refusal(two), HasSubstr("2 inputs (input, more)"));
  ModelMaker outputs;
  outputs.output(outputs.classifier("input", 72, 2));
  outputs.model.outputs.push_back(outputs.model.outputs[0]);
  EXPECT_THAT(refusal(outputs), HasSubstr("2 outputs"));
  ModelMaker image;
  image.output(image.node("Conv", {"input", image.random("w", {2, 2, 3, 3})}));
  EXPECT_THAT(refusal(image), HasSubstr("not a vector of logits"));
  ModelMaker nothing;
  nothing.output(nothing.node("GlobalAveragePool", {"input"}));
  EXPECT_THAT(refusal(nothing), HasSubstr("no weights to train"));
}

TEST(OnnxRefusal, GraphsThatCannotBe) {
  ModelMaker cycle;
  const std::string x = cycle.node("Relu", {"Relu_1:0"});
  cycle.node("Relu", {x});
  cycle.output(cycle.classifier(x, 72, 2));
  EXPECT_THAT(refusal(cycle), HasSubstr("node 'Relu_0' (Relu) is part of a cycle"));
  ModelMaker missing;
  missing.output(missing.node("Conv", {"input", "lost.weight"}));
  EXPECT_THAT(refusal(missing), HasSubstr("node 'Conv_0' reads 'lost.weight', which no node computes"));
  ModelMaker twice;
  twice.output(twice.classifier("input", 72, 2));
  twice.model.nodes[0].outputs = twice.model.nodes[1].outputs;
  EXPECT_THAT(refusal(twice), HasSubstr("two nodes or inputs produce"));
  ModelMaker old;
  old.model.opset = 6;
  old.output(old.classifier("input", 72, 2));
  EXPECT_THAT(refusal(old), HasSubstr("version 6 of ONNX's operators"));
  ModelMaker infinite;
  infinite.output(infinite.classifier("input", 72, 2));
  infinite.model.initializers.at("fc.bias").reals[1] = INFINITY;
  EXPECT_THAT(refusal(infinite, ExitCode::data), HasSubstr("not all finite"));
}

TEST(OnnxRefusal, FilesThatAreNoModels) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "x.onnx";
  const auto error = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return error_text(ExitCode::data, [&] { import_onnx(path); });
  };
  EXPECT_THAT(error_text(ExitCode::data, [&] { import_onnx(path); }), HasSubstr("cannot open"));
  EXPECT_THAT(error(""), HasSubstr("x.onnx: not a readable ONNX model"));
  EXPECT_THAT(error("no model at all, but text"), HasSubstr("not a readable ONNX model"));
  ModelMaker m;
  m.output(m.classifier("input", 72, 2));
  const std::string good = m.bytes();
  EXPECT_THAT(error(good.substr(0, good.size() / 2)), HasSubstr("x.onnx: "));
  m.model.initializers.at("fc.weight").shape[0] = 3;
  EXPECT_THAT(error(m.bytes()), HasSubstr("tensor 'fc.weight' has 216 elements by its shape, 144 are there"));
  m.model.initializers.at("fc.weight").shape[0] = std::int64_t{1} << 62;
  EXPECT_THAT(error(m.bytes()), HasSubstr("impossible shape"));
}

// Damaged files give a model or a one-line error.
TEST(OnnxRefusal, DamagedFilesNeverDoMore) {
  ModelMaker m;
  std::string x = m.node("Conv", {m.node("Pad", {"input", m.integers("pads", {0, 0, 1, 1, 0, 0, 1, 1})}),
                                  m.random("c.weight", {2, 2, 3, 3})});
  x = m.node("AveragePool", {m.node("Relu", {x})}, {{"kernel_shape", Integers{2, 2}}, {"strides", Integers{2, 2}}});
  m.output(m.classifier(x, 18, 2));
  const std::string good = m.bytes();
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = good;
    for (std::size_t changes = 1 + random() % 3; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    try {
      import_onnx_bytes(bytes, "x.onnx");
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      EXPECT_TRUE(error.code() == ExitCode::usage || error.code() == ExitCode::data) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace ddp
