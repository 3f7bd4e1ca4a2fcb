#include "onnx/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>

#include "base/types/half.h"
#include "model/initialize.h"
#include "model/zoo.h"
#include "onnx/file/half_weights.h"
#include "onnx/import.h"
#include "support/errors.h"
#include "support/graph_reference.h"

namespace ddp {
namespace {

// A graph with all kinds of layers, and values as in the middle of training.
struct Trained {
  Graph graph{Shape{3, 13, 12}};
  std::vector<float> parameters;
  std::vector<float> statistics;
  std::vector<float> image;

  Trained() {
    int x = graph.batch_norm("bn0", graph.conv("conv0", graph.input(), {.channels = 8, .window = square(3, 1, 1)}));
    x = graph.max_pool(graph.activation(x, Activation::relu6), 2);
    const int y = graph.batch_norm("bn1", graph.conv("conv1", x, {.channels = 8, .groups = 8, .bias = false}));
    x = graph.batch_norm("bn2", graph.dropout(graph.relu(graph.add(y, x)), 0.5F));
    x = graph.lrn(x, {.size = 3, .alpha = 0.5F});
    x = graph.pool(x, {.window = {.height = 3, .width = 2, .padding = {.top = 1}}, .count_padding = false});
    x = graph.pad(graph.pad(x, {{2, 1, 1, 2}, PadMode::reflect}), {{0, 1, 1, 0}, PadMode::replicate});
    x = graph.conv(
        "apart", x,
        {.channels = 8,
         .window = {.height = 3, .width = 2, .stride = {1, 2}, .padding = {1, 1, 0, 0}, .dilation = {2, 1}}});
    x = graph.conv_transpose(
        "up", x,
        {.channels = 8,
         .window = {.height = 3, .width = 2, .stride = {2, 1}, .padding = {1, 0, 0, 1}, .dilation = {1, 2}},
         .output_padding = {1, 0},
         .groups = 2});
    x = graph.pool(x, {.kind = PoolSpec::Kind::maximum,
                       .window = {.height = 2, .width = 1, .stride = {1, 1}, .dilation = {3, 1}}});
    x = graph.adaptive_average_pool(x, 5, 7);
    x = graph.pointwise(x, PointwiseFunction::silu);
    x = graph.sample_norm("ln", x, {.over = NormOver::channels, .epsilon = 1e-6F});
    x = graph.sample_norm("gn", x, {.over = NormOver::groups, .groups = 2, .epsilon = 1e-4F});
    x = graph.sample_norm("in", x, {.over = NormOver::groups, .groups = 8});
    x = graph.prelu("act1", graph.prelu("act0", graph.linear_per_position("pw", x, 8)), /*shared=*/true);
    const int scale = graph.conv("se", graph.global_average_pool(x), {.channels = 8});
    x = graph.pointwise(graph.product(x, graph.pointwise(scale, PointwiseFunction::hardsigmoid)),
                        PointwiseFunction::mish);
    x = graph.concat(
        {x, graph.channel_select(x, {.first = 2, .count = 4}), graph.pointwise(x, PointwiseFunction::hardswish)});
    x = graph.channel_select(graph.channel_shuffle(x, 5), {.first = 3, .count = 12, .groups = 3});
    x = graph.apply(x, SoftmaxSpec{});
    x = graph.pointwise(graph.pointwise(x, PointwiseFunction::leaky_relu, 0.2F), PointwiseFunction::elu, 0.7F);
    x = graph.activation(graph.global_average_pool(x), Activation::tanh);
    x = graph.batch_norm("bn3", graph.linear("fc1", graph.flatten(x), 6));
    x = graph.prelu("act2", x);
    x = graph.sample_norm("ln1", x, {.over = NormOver::channels});
    x = graph.gelu(graph.gelu(graph.activation(x, Activation::sigmoid)), GeluForm::tanh);
    graph.linear("fc2", graph.apply(x, SoftmaxSpec{}), 4, false);
    std::mt19937 engine{3};
    std::uniform_real_distribution<float> uniform(0.25F, 1);
    const auto fill = [&](std::vector<float>& values, std::int64_t count, bool signs) {
      for (std::int64_t i = 0; i < count; ++i) values.push_back(uniform(engine) * (signs && i % 3 == 0 ? -1.0F : 1.0F));
    };
    for (const Parameter& p : graph.parameters()) {
      fill(parameters, p.elements(), true);
      parameters.resize(static_cast<std::size_t>(p.offset + p.flat_elements()));
    }
    fill(statistics, graph.statistic_count(), false);
    fill(image, graph.shape(0).elements(), true);
  }
  ExportedModel exported() const { return {graph, parameters, statistics, {{"mean", "[0.5]"}}}; }
  std::vector<double> logits() const { return GraphReference(graph, parameters, statistics).logits(image); }
};

bool has_node(const OnnxModel& model, const std::string& type) {
  return std::any_of(model.nodes.begin(), model.nodes.end(), [&](const OnnxNode& node) { return node.type == type; });
}

TEST(ExportOnnx, ComesBackWithTheSameNamesAndValues) {
  const Trained trained;
  const OnnxModel model = export_onnx(trained.exported(), {});
  EXPECT_EQ(model.metadata.at("mean"), "[0.5]");
  const ImportedModel back = import_onnx_bytes(to_bytes(model), "back.onnx");
  EXPECT_EQ(back.parameters, trained.parameters);
  EXPECT_EQ(back.statistics, trained.statistics);
  ASSERT_EQ(back.graph.parameters().size(), trained.graph.parameters().size());
  for (std::size_t i = 0; i < back.graph.parameters().size(); ++i) {
    EXPECT_EQ(back.graph.parameters()[i].name, trained.graph.parameters()[i].name);
    EXPECT_EQ(back.graph.parameters()[i].shape, trained.graph.parameters()[i].shape);
  }
  const std::vector<double> logits = GraphReference(back.graph, back.parameters, back.statistics).logits(trained.image);
  EXPECT_EQ(logits, trained.logits());
}

// Only the weights and statistics are stored in half precision, exactly as they round; names stay.
TEST(ExportOnnx, HalfPrecisionComesBackRounded) {
  const Trained trained;
  std::set<std::string> names;
  for (const Parameter& p : trained.graph.parameters()) names.insert(p.name);
  for (const Statistic& s : trained.graph.statistics()) names.insert(s.name);
  const std::size_t whole = to_bytes(export_onnx(trained.exported(), {})).size();
  for (const bool half : {true, false}) {
    OnnxModel model = export_onnx(trained.exported(), {});
    store_weights_as(model, half ? "FLOAT16" : "BFLOAT16", names);
    const std::string bytes = to_bytes(model);
    EXPECT_LT(bytes.size(), whole + 100 * names.size() - 2 * static_cast<std::size_t>(trained.graph.parameter_count()));
    const OnnxModel read = parse_onnx(bytes, "half.onnx");
    EXPECT_EQ(read.initializers.at("fc1.weight").type_name, half ? "FLOAT16" : "BFLOAT16");
    EXPECT_EQ(read.initializers.at("relu6.max").type_name, "FLOAT");
    const ImportedModel back = import_onnx_bytes(bytes, "half.onnx");
    const auto rounded = [&](float value) {
      return half ? half_to_float(float_to_half(value)) : bfloat16_to_float(float_to_bfloat16(value));
    };
    ASSERT_EQ(back.parameters.size(), trained.parameters.size());
    for (std::size_t i = 0; i < back.parameters.size(); ++i) {
      ASSERT_EQ(back.parameters[i], rounded(trained.parameters[i])) << i;
    }
    for (std::size_t i = 0; i < back.statistics.size(); ++i)
      EXPECT_EQ(back.statistics[i], rounded(trained.statistics[i]));
    for (std::size_t i = 0; i < back.graph.parameters().size(); ++i) {
      EXPECT_EQ(back.graph.parameters()[i].name, trained.graph.parameters()[i].name);
    }
  }
}

TEST(ExportOnnx, ValuesBeyondHalfPrecisionAreNamed) {
  Trained trained;
  trained.parameters[0] = 1e5F;
  OnnxModel model = export_onnx(trained.exported(), {});
  EXPECT_THAT(error_text(ExitCode::non_finite, [&] { store_weights_as(model, "FLOAT16", {"conv0.weight"}); }),
              testing::HasSubstr("tensor 'conv0.weight' has values beyond the largest of FLOAT16"));
}

TEST(ExportOnnx, FoldedBatchNormGivesTheSameLogits) {
  const Trained trained;
  const OnnxModel model = export_onnx(trained.exported(), {.fold_batch_norm = true});
  // bn2 does not follow a layer with weights.
  EXPECT_EQ(std::count_if(model.nodes.begin(), model.nodes.end(),
                          [](const OnnxNode& node) { return node.type == "BatchNormalization"; }),
            1);
  const ImportedModel back = import_onnx_bytes(to_bytes(model), "back.onnx");
  const std::vector<double> logits = GraphReference(back.graph, back.parameters, back.statistics).logits(trained.image);
  const std::vector<double> expected = trained.logits();
  // Folding rounds the weights to float32 once more.
  for (std::size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(logits[i], expected[i], 1e-5 * std::abs(expected[i]) + 1e-6);
}

TEST(ExportOnnx, LayerThatTwoReadIsNotFolded) {
  Graph graph({1, 4, 4});
  const int conv = graph.conv("conv", graph.input(), {.channels = 2});
  const int sum = graph.add(graph.batch_norm("bn", conv), conv);
  graph.linear("fc", graph.flatten(sum), 2);
  const std::vector<float> parameters(static_cast<std::size_t>(graph.flat_elements()), 0.5F);
  const std::vector<float> statistics(static_cast<std::size_t>(graph.statistic_count()), 1.0F);
  const OnnxModel model = export_onnx({graph, parameters, statistics, {}}, {.fold_batch_norm = true});
  EXPECT_TRUE(has_node(model, "BatchNormalization"));
}

TEST(ExportOnnx, EveryModelOfTheZooComesBack) {
  for (const std::string& name : model_names()) {
    SCOPED_TRACE(name);
    const bool large = name.find("imagenet") != std::string::npos || name == "caffenet" || name == "alexnet";
    Graph graph{Shape{}};
    try {
      graph = make_model(name, large ? Shape{3, 227, 227} : Shape{3, 32, 32}, 10);
    } catch (const std::exception&) {
      graph = make_model(name, name.find("lenet") != std::string::npos ? Shape{1, 28, 28} : Shape{3, 224, 224}, 10);
    }
    if (graph.parameter_count() > 7'000'000) continue;  // takes seconds, without additional coverage
    std::vector<float> parameters(static_cast<std::size_t>(graph.flat_elements()));
    std::vector<float> statistics(static_cast<std::size_t>(graph.statistic_count()));
    initialize(graph, std::nullopt, 1, parameters);
    initialize_statistics(graph, statistics);
    const ImportedModel back =
        import_onnx_bytes(to_bytes(export_onnx({graph, parameters, statistics, {}}, {})), "back.onnx");
    EXPECT_EQ(back.parameters, parameters);
    EXPECT_EQ(back.statistics, statistics);
    EXPECT_EQ(back.graph.classes(), 10);
    std::set<std::string> names;
    for (const Parameter& p : graph.parameters()) names.insert(p.name);
    for (const Statistic& s : graph.statistics()) names.insert(s.name);
    OnnxModel half = export_onnx({graph, parameters, statistics, {}}, {});
    store_weights_as(half, "BFLOAT16", names);
    const ImportedModel rounded = import_onnx_bytes(to_bytes(half), "half.onnx");
    EXPECT_EQ(rounded.parameters.size(), parameters.size());
    EXPECT_EQ(rounded.graph.layers().size(), back.graph.layers().size());
  }
}

}  // namespace
}  // namespace ddp
