#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/layout_plan.h"
#include "model/stages.h"
#include "model/zoo.h"

namespace ddp {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Zoo, LeNetHasThePublishedParameters) {
  const Graph graph = make_model("lenet", {1, 28, 28}, 10);
  // 20*(9+1) + 50*(500+1) + 128*(800+1) + 10*(128+1), calculated by hand from d2l.ai's definition.
  EXPECT_EQ(graph.parameter_count(), 200 + 25050 + 102528 + 1290);
  std::vector<std::string> names;
  for (const Parameter& p : graph.parameters()) names.push_back(p.name);
  EXPECT_THAT(names, testing::ElementsAre("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight",
                                          "fc1.bias", "fc2.weight", "fc2.bias"));
}

// Required by libraries and vector loads. LeNet has small biases, MobileNetV2 channel counts that are not multiples of
// 64.
TEST(Zoo, ParametersAreAligned) {
  for (const std::string model : {"lenet", "mobilenet-v2"}) {
    const Graph graph = make_model(model, model == "lenet" ? Shape{1, 28, 28} : Shape{3, 32, 32}, 10);
    std::int64_t end = 0;
    for (const Parameter& p : graph.parameters()) {
      EXPECT_EQ(static_cast<std::size_t>(p.offset) * sizeof(float) % kMemoryAlignment, 0U) << p.name;
      EXPECT_GE(p.offset, end) << p.name;
      EXPECT_LT(p.offset - end, kParameterAlignment) << p.name;
      end = p.offset + p.elements();
    }
    EXPECT_GE(graph.flat_elements(), end);
    EXPECT_GT(graph.flat_elements(), graph.parameter_count());
  }
}

TEST(Zoo, AnUnknownModelSuggestsTheNearest) {
  EXPECT_THAT([] { make_model("lenett", {1, 28, 28}, 10); }, ThrowsMessage<Error>(HasSubstr("did you mean lenet?")));
}

TEST(Zoo, ImagesTooSmallAreAnErrorThatNamesTheLayer) {
  EXPECT_THAT([] { make_model("lenet", {1, 9, 9}, 10); }, ThrowsMessage<Error>(HasSubstr("conv2")));
}

TEST(Stages, LeNetIsFusedAndCropped) {
  const Graph graph = make_model("lenet", {1, 28, 28}, 10);
  const std::vector<Stage> stages = make_stages(graph, 32);
  ASSERT_EQ(stages.size(), 4U);
  // The second pooling drops row and column 9, so they are not computed: 12x12 input, 8x8 convolved, 4x4 output.
  const auto& conv2 = std::get<ConvSpec>(stages[1].spec);
  EXPECT_EQ(conv2.input, (Shape{20, 12, 12}));
  EXPECT_EQ(conv2.convolved(), (Shape{50, 8, 8}));
  EXPECT_EQ(conv2.output(), (Shape{50, 4, 4}));
  EXPECT_TRUE(conv2.relu && conv2.average_pool && conv2.input_gradient);
  const auto& conv1 = std::get<ConvSpec>(stages[0].spec);
  EXPECT_EQ(conv1.input, (Shape{1, 26, 26}));
  EXPECT_FALSE(conv1.input_gradient);
  EXPECT_EQ(cropped_input(graph), (Shape{1, 26, 26}));
  EXPECT_TRUE(stages[2].inputs.front().flattens);
  EXPECT_EQ(std::get<LinearSpec>(stages[2].spec).inputs, 800);
}

TEST(Stages, PaddingShrinksWithTheCrop) {
  Graph graph({3, 9, 9});
  int x = graph.conv("conv", graph.input(), {.channels = 4, .window = square(3, 1, 1)});
  x = graph.max_pool(x, 2);
  graph.linear("fc", graph.flatten(x), 2);
  const std::vector<Stage> stages = make_stages(graph, 1);
  const auto& conv = std::get<ConvSpec>(stages[0].spec);
  // Pooling reads 8x8 of the 9x9 outputs, so no padding is needed at the bottom and on the right.
  EXPECT_EQ(conv.convolved(), (Shape{4, 8, 8}));
  EXPECT_EQ(conv.input, (Shape{3, 9, 9}));
  EXPECT_EQ(conv.window.padding.top, 1);
  EXPECT_EQ(conv.window.padding.bottom, 0);
}

// A convolution and a linear layer before batch normalisation, and a convolution whose output has other readers.
TEST(Stages, ABiasInFrontOfBatchNormIsTheNormsOnRequest) {
  Graph graph({3, 8, 8});
  int x = graph.batch_norm("norm1", graph.conv("conv1", graph.input(), {.channels = 4, .window = square(3)}));
  const int read_twice = graph.conv("conv2", x, {.channels = 4, .window = square(1)});
  x = graph.add(graph.batch_norm("norm2", read_twice), read_twice);
  x = graph.batch_norm("norm3", graph.linear("fc1", graph.flatten(x), 5));
  graph.linear("fc2", x, 2);
  const std::vector<Stage> as_they_are = make_stages(graph, 2);
  const std::vector<Stage> moved = make_stages(graph, 2, true);
  ASSERT_EQ(moved.size(), as_they_are.size());
  std::vector<std::string> norms_with_bias;
  std::vector<std::string> others_with_bias;
  for (std::size_t i = 0; i < moved.size(); ++i) {
    const auto* norm = std::get_if<BatchNormSpec>(&moved[i].spec);
    if (norm != nullptr && norm->input_bias) {
      norms_with_bias.push_back(moved[i].name);
      ASSERT_EQ(moved[i].parameters.size(), 3U);
      EXPECT_EQ(moved[i].parameters.back(), as_they_are[i - 1].parameters.back());
      EXPECT_EQ(moved[i - 1].parameters.size(), 1U);
    } else if (moved[i].parameters.size() == 2 && norm == nullptr) {
      others_with_bias.push_back(moved[i].name);
    }
    norm = std::get_if<BatchNormSpec>(&as_they_are[i].spec);
    EXPECT_TRUE(norm == nullptr || !norm->input_bias);
  }
  EXPECT_THAT(norms_with_bias, testing::ElementsAre("norm1", "norm3"));
  EXPECT_THAT(others_with_bias, testing::ElementsAre("conv2", "fc2"));
}

TEST(LayoutPlan, TravelsAsText) {
  const auto backend = make_cpu_backend();
  const Graph graph = make_model("lenet", {1, 28, 28}, 10);
  const std::vector<Stage> stages = make_stages(graph, 16);
  for (const ChoiceMode mode : {ChoiceMode::fixed, ChoiceMode::timed}) {
    const LayoutPlan plan = plan_layouts(*backend, stages, mode);
    ASSERT_EQ(plan.stages.size(), 4U);
    const std::string text = to_text(plan);
    EXPECT_EQ(to_text(layout_plan_from_text(text, stages)), text);
  }
  EXPECT_EQ(to_text(plan_layouts(*backend, stages, ChoiceMode::fixed)),
            to_text(plan_layouts(*backend, stages, ChoiceMode::fixed)));
}

// Each operator once, those with the most work first, so that ranks can share them.
TEST(LayoutPlan, QueriesAreDistinctAndInOrderOfTheirWork) {
  const auto backend = make_cpu_backend();
  const std::vector<Stage> stages = make_stages(make_model("resnet18-d2l", {1, 28, 28}, 10), 16);
  const std::vector<KernelQuery> queries = kernel_queries(backend->ops(), stages);
  for (std::size_t i = 0; i < queries.size(); ++i) {
    EXPECT_EQ(std::count(queries.begin(), queries.end(), queries[i]), 1);
    const OpSpec& before = queries[i == 0 ? 0 : i - 1].spec;
    EXPECT_GE(forward_multiply_adds(before), forward_multiply_adds(queries[i].spec));
  }
  const auto asks = [&](const OpSpec& spec) {
    return std::any_of(queries.begin(), queries.end(), [&](const KernelQuery& query) { return query.spec == spec; });
  };
  for (const Stage& stage : stages) EXPECT_TRUE(asks(stage.spec)) << stage.name;
}

// The plan is the cheapest by the answers, whatever they are: each layout in turn, where it has a kernel.
TEST(LayoutPlan, FollowsTheAnswers) {
  const auto backend = make_cpu_backend();
  const std::vector<Stage> stages = make_stages(make_model("lenet", {1, 28, 28}, 10), 16);
  const std::vector<KernelQuery> queries = kernel_queries(backend->ops(), stages);
  for (const Layout liked : {Layout::nhwc, Layout::lanes16}) {
    std::vector<KernelChoice> answers;
    for (const KernelQuery& query : queries) {
      const bool cheap = query.from == liked && query.to == liked;
      answers.push_back({fmt::format("kernels in {}", to_string(query.to)), cheap ? 1.0 : 100.0});
    }
    const LayoutPlan plan = plan_layouts(backend->ops(), stages, queries, answers);
    EXPECT_EQ(plan.stages.front().layout, liked);
    EXPECT_EQ(plan.stages.front().kernels, fmt::format("kernels in {}", to_string(liked)));
    const LayoutPlan other = plan_layouts(*backend, stages, ChoiceMode::fixed);
    EXPECT_EQ(other.stages.size(), plan.stages.size());
  }
}

TEST(LayoutPlan, ATextOfAnotherModelIsRefused) {
  const std::vector<Stage> stages = make_stages(make_model("lenet", {1, 28, 28}, 10), 16);
  EXPECT_THROW(layout_plan_from_text("", stages), Error);
  EXPECT_THROW(layout_plan_from_text("layout plan, version 1\npredicted 0.1\nconv9 plain\n", stages), Error);
  EXPECT_THROW(layout_plan_from_text("layout plan, version 1\npredicted 0.1\nconv1 round\n", stages), Error);
}

}  // namespace
}  // namespace ddp
