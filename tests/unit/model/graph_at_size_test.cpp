// The same network for images of another size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "model/graph.h"
#include "model/stages.h"
#include "model/zoo.h"

namespace ddp {
namespace {

using testing::HasSubstr;

std::string at_size_error(const Graph& graph, std::int64_t height, std::int64_t width) {
  try {
    (void)graph.at_size(height, width);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "none";
}

// Their definitions do not depend on the size, so the network built for the other size is the reference.
TEST(GraphAtSize, IsTheModelOfThatSize) {
  for (const char* name : {"resnet18", "resnet50", "mobilenet-v2", "mobilenet-v3-small", "efficientnet-b0",
                           "convnext-tiny", "shufflenet-v2", "densenet121", "squeezenet1-1"}) {
    const Graph full = make_model(name, {3, 96, 96}, 7);
    const Graph reference = make_model(name, {3, 64, 80}, 7);
    const Graph smaller = full.at_size(64, 80);
    ASSERT_EQ(smaller.layers().size(), reference.layers().size()) << name;
    for (std::size_t i = 0; i < reference.layers().size(); ++i) {
      EXPECT_EQ(smaller.layers()[i].output, reference.layers()[i].output) << name << " " << reference.layers()[i].name;
      EXPECT_EQ(smaller.layers()[i].name, full.layers()[i].name);
      EXPECT_EQ(smaller.layers()[i].inputs, full.layers()[i].inputs);
    }
    ASSERT_EQ(smaller.parameters().size(), full.parameters().size()) << name;
    for (std::size_t p = 0; p < full.parameters().size(); ++p) {
      EXPECT_EQ(smaller.parameters()[p].name, full.parameters()[p].name);
      EXPECT_EQ(smaller.parameters()[p].shape, full.parameters()[p].shape);
      EXPECT_EQ(smaller.parameters()[p].offset, full.parameters()[p].offset);
    }
    const std::vector<Stage> stages = make_stages(smaller, 2);
    const std::vector<Stage> expected = make_stages(reference, 2);
    ASSERT_EQ(stages.size(), expected.size());
    for (std::size_t s = 0; s < stages.size(); ++s) {
      EXPECT_TRUE(stages[s].spec == expected[s].spec) << name << " " << stages[s].name;
    }
  }
}

TEST(GraphAtSize, TheSameSizeGivesTheSameNetwork) {
  for (const std::string& name : model_names()) {
    const bool grey = name.find("lenet") != std::string::npos || name.find("mnist") != std::string::npos;
    const Shape image = grey ? Shape{1, 28, 28} : Shape{3, 224, 224};
    if (name == "cifar10-tutorial" || name.starts_with("airbench") || name == "resnet9") continue;
    const Graph graph = make_model(name, image, 10);
    const Graph same = graph.at_size(image.height, image.width);
    const std::vector<Stage> stages = make_stages(graph, 2);
    const std::vector<Stage> again = make_stages(same, 2);
    ASSERT_EQ(stages.size(), again.size()) << name;
    for (std::size_t s = 0; s < stages.size(); ++s) EXPECT_TRUE(stages[s].spec == again[s].spec) << name;
  }
}

TEST(GraphAtSize, SettingsOfLayersStay) {
  Graph graph({3, 32, 32});
  int x = graph.conv("conv1", graph.input(), {.channels = 8, .window = square(3, 1, 1), .bias = false});
  x = graph.relu(graph.batch_norm("bn1", x));
  x = graph.flatten(graph.global_average_pool(x));
  const int fc = graph.linear("fc", x, 6);
  graph.synchronize_batch_norm();
  graph.split_linear(fc, 2);
  graph.parameter("conv1.weight").lr_scale = 3;
  const Graph smaller = graph.at_size(20, 20);
  EXPECT_TRUE(std::get<BatchNormLayer>(smaller.layers()[2].kind).synchronized);
  EXPECT_EQ(std::get<LinearLayer>(smaller.layers()[static_cast<std::size_t>(fc)].kind).parts, 2);
  EXPECT_EQ(smaller.parameters()[0].lr_scale, 3);
}

TEST(GraphAtSize, ANetworkThatDependsOnTheSizeIsRejected) {
  EXPECT_THAT(at_size_error(make_model("lenet", {1, 28, 28}, 10), 20, 20),
              HasSubstr("has 800 inputs with images of 28x28, but 200 with images of 20x20"));
  EXPECT_THAT(at_size_error(make_model("alexnet", {3, 224, 224}, 10), 16, 16), HasSubstr("does not fit into its"));
  // Logits without a linear layer.
  Graph graph({3, 8, 8});
  graph.conv("conv", graph.input(), {.channels = 4, .window = square(8, 1, 0)});
  EXPECT_THAT(at_size_error(graph, 9, 8), HasSubstr("the network's result is 1x1 with images of 8x8, but 2x1"));
}

}  // namespace
}  // namespace ddp
