#include "train/step/parameter_segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/text/text.h"
#include "model/zoo.h"

namespace ddp {
namespace {

TEST(ParameterSegments, PatternsMatchTheWholeName) {
  EXPECT_TRUE(matches("conv1.weight", "conv1.weight"));
  EXPECT_TRUE(matches("*", "conv1.weight"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("*.weight", "conv1.weight"));
  EXPECT_TRUE(matches("conv?.*", "conv1.weight"));
  EXPECT_TRUE(matches("*n*w*", "conv1.weight"));
  EXPECT_TRUE(matches("c**t", "conv1.weight"));
  EXPECT_TRUE(matches("*aab", "aaaab"));
  EXPECT_FALSE(matches("conv1", "conv1.weight"));
  EXPECT_FALSE(matches("weight", "conv1.weight"));
  EXPECT_FALSE(matches("conv?.weight", "conv12.weight"));
  EXPECT_FALSE(matches("*.bias", "conv1.weight"));
  EXPECT_FALSE(matches("", "x"));
  EXPECT_FALSE(matches("?", ""));
}

const ParameterSegment& segment_of(const std::vector<ParameterSegment>& segments, const Graph& graph,
                                   const std::string& name) {
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (graph.parameters()[i].name == name) return segments[i];
  }
  throw Error(ExitCode::internal, name);
}

// The groups of parameters of airbench94's optimizer, and its freezing.
TEST(ParameterSegments, FollowTheRecipeOfAirbench) {
  const Graph graph = make_model("airbench94", {3, 32, 32}, 10);
  OptimizerOptions options;
  options.lr_for = {{"*.norm?.bias", 64}};
  options.decay_for = {{"*.norm?.bias", 1.0 / 64}, {"group3.norm1.*", 0.5}};
  options.freeze = {{"whiten.weight", 0}, {"whiten.*", 3}};
  const std::vector<ParameterSegment> segments = parameter_segments(graph, options, 48);
  ASSERT_EQ(segments.size(), graph.parameters().size());
  EXPECT_EQ(segment_of(segments, graph, "group2.norm1.bias").lr_scale, 64);
  EXPECT_EQ(segment_of(segments, graph, "group2.norm1.bias").decay_scale, 1.0F / 64);
  EXPECT_EQ(segment_of(segments, graph, "group3.norm1.bias").decay_scale, 1.0F / 128);
  EXPECT_EQ(segment_of(segments, graph, "group2.conv1.weight").lr_scale, 1);
  EXPECT_EQ(segment_of(segments, graph, "group2.conv1.weight").decay_scale, 1);
  EXPECT_EQ(segment_of(segments, graph, "group2.norm1.weight").lr_scale, 0);  // fixed by the model
  EXPECT_EQ(segment_of(segments, graph, "whiten.weight").last_step, 0);
  EXPECT_EQ(segment_of(segments, graph, "whiten.bias").last_step, 144);
  EXPECT_EQ(segment_of(segments, graph, "head.weight").last_step, kEveryStep);
}

// As the parameters that timm leaves out of weight decay, those of one dimension, and LARS' and LAMB's "exclude from adaptation".
TEST(ParameterSegments, NormalisationAndBiasesMayBeWithoutDecay) {
  const Graph graph = make_model("airbench94", {3, 32, 32}, 10);
  OptimizerOptions options;
  options.decay_for = {{"group2.*", 0.5}};
  options.no_decay_on = NoDecay::norm_and_bias;
  const std::vector<ParameterSegment> segments = parameter_segments(graph, options, 48);
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Parameter& p = graph.parameters()[i];
    const bool plain = p.shape.size() == 1;
    EXPECT_EQ(segments[i].adapt, !plain) << p.name;
    EXPECT_EQ(segments[i].decay_scale, plain ? 0 : p.name.starts_with("group2.") ? 0.5F : 1) << p.name;
  }
  options.no_decay_on = NoDecay::none;
  EXPECT_EQ(segment_of(parameter_segments(graph, options, 48), graph, "group2.norm1.bias").decay_scale, 0.5F);
  EXPECT_TRUE(segment_of(parameter_segments(graph, options, 48), graph, "group2.norm1.bias").adapt);
}

TEST(ParameterSegments, FadeUntilTheyAreFrozen) {
  const Graph graph = make_model("airbench94", {3, 32, 32}, 10);
  OptimizerOptions options;
  options.lr_fade_for = {{"whiten.bias", 3}, {"head.*", 1.5}};
  options.freeze = {{"head.weight", 1}};
  const std::vector<ParameterSegment> segments = parameter_segments(graph, options, 25);
  EXPECT_EQ(segment_of(segments, graph, "whiten.bias").fade_steps, 75);
  EXPECT_EQ(segment_of(segments, graph, "whiten.bias").last_step, 75);
  EXPECT_EQ(segment_of(segments, graph, "head.weight").fade_steps, 38);
  EXPECT_EQ(segment_of(segments, graph, "head.weight").last_step, 25);
  EXPECT_EQ(segment_of(segments, graph, "whiten.weight").fade_steps, kEveryStep);
}

// All weights but the first and the classifier's, with a row for each output.
TEST(ParameterSegments, AreMatricesToMuonIfTheyAreHiddenWeights) {
  const Graph graph = make_model("airbench94", {3, 32, 32}, 10);
  OptimizerOptions options;
  for (const ParameterSegment& each : parameter_segments(graph, options, 48)) EXPECT_EQ(each.rows, 0);
  options.optimizer = UpdateRule::muon;
  const std::vector<ParameterSegment> segments = parameter_segments(graph, options, 48);
  EXPECT_EQ(segment_of(segments, graph, "group1.conv1.weight").rows, 64);
  EXPECT_EQ(segment_of(segments, graph, "group3.conv2.weight").rows, 256);
  for (const char* name : {"whiten.weight", "whiten.bias", "group1.norm1.bias", "scale.weight", "head.weight"}) {
    EXPECT_EQ(segment_of(segments, graph, name).rows, 0) << name;
  }
}

TEST(ParameterSegments, RejectPatternsWithoutAParameter) {
  const Graph graph = make_model("airbench94", {3, 32, 32}, 10);
  // The factors of the logits are a constant.
  for (const char* pattern : {"conv*", "scale.weight"}) {
    OptimizerOptions options;
    options.freeze = {{pattern, 0}};
    try {
      (void)parameter_segments(graph, options, 48);
      FAIL() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_THAT(error.what(), testing::HasSubstr(std::string("--freeze: no parameter of the model matches '") +
                                                   pattern + "'; there are whiten.weight, whiten.bias, "));
    }
  }
}

// Freezes a ResNet-18; the names of the batch normalisations that keep their statistics.
std::vector<std::string> kept_norms(const std::vector<PatternEpochs>& patterns, bool keep = true) {
  Graph graph = make_model("resnet18", {3, 32, 32}, 10);
  OptimizerOptions options;
  options.freeze = patterns;
  freeze(graph, options, parameter_segments(graph, options, 7), keep);
  std::vector<std::string> names;
  for (const Layer& layer : graph.layers()) {
    const auto* norm = std::get_if<BatchNormLayer>(&layer.kind);
    if (norm != nullptr && norm->frozen) names.push_back(layer.name);
  }
  return names;
}

TEST(Freeze, NormsWhoseParametersAreAllFrozenKeepTheirStatistics) {
  using ::testing::ElementsAre;
  using ::testing::IsEmpty;
  EXPECT_THAT(kept_norms({{"bn1.*", 0}, {"layer1.0.bn2.weight", 0}}), ElementsAre("bn1"));
  EXPECT_THAT(kept_norms({{"layer1.0.bn2.weight", 0}, {"layer1.0.bn2.bias", 0}}), ElementsAre("layer1.0.bn2"));
  EXPECT_EQ(kept_norms({{"*", 0}}).size(), 20U);
  EXPECT_THAT(kept_norms({{"bn1.*", 0}}, /*keep=*/false), IsEmpty());
  EXPECT_THAT(kept_norms({{"conv1.*", 0}}), IsEmpty());
  EXPECT_THAT(kept_norms({}), IsEmpty());
  // Trained in the first epochs.
  EXPECT_THAT(kept_norms({{"bn1.*", 2}}), IsEmpty());
}

TEST(Freeze, TheHeaderCountsNormsThatKeepTheirStatistics) {
  Graph graph = make_model("resnet18", {3, 32, 32}, 10);
  EXPECT_EQ(kept_statistics_text(graph), "");
  OptimizerOptions options;
  options.freeze = {{"conv1.*", 0}, {"bn1.*", 0}};
  freeze(graph, options, parameter_segments(graph, options, 7), true);
  EXPECT_EQ(kept_statistics_text(graph), "1 of 20 batch normalizations keeps its running statistics");
}

}  // namespace
}  // namespace ddp
