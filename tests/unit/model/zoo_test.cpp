#include "model/zoo.h"

#include <gtest/gtest.h>

#include <map>

#include "model/stages.h"

namespace ddp {
namespace {

struct Published {
  const char* model;
  Shape image;
  std::int64_t classes;
  std::int64_t parameters;
};

// Sources: torchvision's documentation ("num_params" of their weights) for its networks; Caffe's model zoo for caffenet; the others are counted by hand, layer by layer, from their sources.
const std::vector<Published> kPublished = {
    {"resnet18", {3, 224, 224}, 1000, 11'689'512},
    {"resnet34", {3, 224, 224}, 1000, 21'797'672},
    {"resnet50", {3, 224, 224}, 1000, 25'557'032},
    {"mobilenet-v2", {3, 224, 224}, 1000, 3'504'872},
    {"wide-resnet50-2", {3, 224, 224}, 1000, 68'883'240},
    {"mobilenet-v3-large", {3, 224, 224}, 1000, 5'483'032},
    {"mobilenet-v3-small", {3, 224, 224}, 1000, 2'542'856},
    {"efficientnet-b0", {3, 224, 224}, 1000, 5'288'548},
    {"convnext-tiny", {3, 224, 224}, 1000, 28'589'128},
    {"shufflenet-v2", {3, 224, 224}, 1000, 2'278'604},
    {"densenet121", {3, 224, 224}, 1000, 7'978'856},
    {"squeezenet1-1", {3, 224, 224}, 1000, 1'235'496},
    {"alexnet", {3, 224, 224}, 1000, 61'100'840},
    {"vgg11", {3, 224, 224}, 1000, 132'863'336},
    {"vgg11-bn", {3, 224, 224}, 1000, 132'868'840},
    {"vgg16", {3, 224, 224}, 1000, 138'357'544},
    {"vgg16-bn", {3, 224, 224}, 1000, 138'365'992},
    {"caffenet", {3, 227, 227}, 1000, 60'965'224},
    {"caffe-lenet", {1, 28, 28}, 10, 431'080},
    {"cifar10-tutorial", {3, 24, 24}, 10, 1'068'298},
    {"resnet9", {3, 32, 32}, 10, 6'575'370},
    // With the scale of batch normalisation, which the authors' network has too, and 256 equal factors that make the logits small.
    {"airbench94",
     {3, 32, 32},
     10,
     24 * 13 + 9 * (24 * 64 + 64 * 64 + 64 * 256 + 3 * 256 * 256) + 4 * 1152 / 2 + 2560 + 256},
    {"airbench94-muon",
     {3, 32, 32},
     10,
     24 * 13 + 9 * (24 * 64 + 64 * 64 + 64 * 256 + 3 * 256 * 256) + 4 * 1152 / 2 + 2560 + 256},
    {"resnet18-d2l", {1, 28, 28}, 10, 11'175'818},
    {"mnist-towers", {1, 28, 28}, 10, 12 * 26 + 24 * 109 + 100 * (24 * 49 + 1) + 10 * 101},
    // The scale of batch normalisation is a tensor that TF-Slim omits; it is never updated.
    {"mnist-slim", {1, 28, 28}, 10, 6 * 25 + 2 * 6 + 12 * 150 + 2 * 12 + 100 * 588 + 2 * 100 + 10 * 101},
};

TEST(Zoo, ModelsHaveThePublishedParameters) {
  for (const Published& p : kPublished) {
    EXPECT_EQ(make_model(p.model, p.image, p.classes).parameter_count(), p.parameters) << p.model;
  }
}

// After each stage, backward reports the offset from which on the gradient is final, so the flat buffer must be in
// stage order.
TEST(Zoo, ParametersLieInTheOrderOfStages) {
  for (const Published& p : kPublished) {
    const Graph graph = make_model(p.model, p.image, p.classes);
    int next = 0;
    for (const Stage& stage : make_stages(graph, 2)) {
      for (const int parameter : stage.parameters) EXPECT_EQ(parameter, next++) << p.model << " " << stage.name;
    }
    EXPECT_EQ(next, static_cast<int>(graph.parameters().size())) << p.model;
  }
}

TEST(Zoo, TensorsAreNamedAsInPyTorch) {
  const auto shapes = [](const char* model, std::int64_t classes) {
    std::map<std::string, std::vector<std::int64_t>> found;
    const Graph graph = make_model(model, {3, 64, 64}, classes);
    for (const Parameter& p : graph.parameters()) found[p.name] = p.shape;
    return found;
  };
  const auto resnet = shapes("resnet50", 7);
  EXPECT_EQ(resnet.at("conv1.weight"), (std::vector<std::int64_t>{64, 3, 7, 7}));
  EXPECT_EQ(resnet.at("layer1.0.downsample.0.weight"), (std::vector<std::int64_t>{256, 64, 1, 1}));
  EXPECT_EQ(resnet.at("layer4.2.bn3.bias"), (std::vector<std::int64_t>{2048}));
  EXPECT_EQ(resnet.at("fc.weight"), (std::vector<std::int64_t>{7, 2048}));
  const auto mobilenet = shapes("mobilenet-v2", 7);
  EXPECT_EQ(mobilenet.at("features.1.conv.0.0.weight"), (std::vector<std::int64_t>{32, 1, 3, 3}));
  EXPECT_EQ(mobilenet.at("features.2.conv.2.weight"), (std::vector<std::int64_t>{24, 96, 1, 1}));
  EXPECT_EQ(mobilenet.at("features.18.1.weight"), (std::vector<std::int64_t>{1280}));
  EXPECT_EQ(mobilenet.at("classifier.1.weight"), (std::vector<std::int64_t>{7, 1280}));
}

// Batch normalisation, residual sum and ReLU become one operator.
TEST(Zoo, ResidualBlocksAreFused) {
  std::map<std::string, int> kinds;
  for (const Stage& stage : make_stages(make_model("resnet18", {3, 224, 224}, 10), 2)) ++kinds[kind_of(stage.spec)];
  EXPECT_EQ(kinds, (std::map<std::string, int>{{"conv", 20}, {"batchnorm", 20}, {"pool", 2}, {"linear", 1}}));
  kinds.clear();
  for (const Stage& stage : make_stages(make_model("mobilenet-v2", {3, 224, 224}, 10), 2)) ++kinds[kind_of(stage.spec)];
  EXPECT_EQ(kinds,
            (std::map<std::string, int>{{"conv", 52}, {"batchnorm", 52}, {"pool", 1}, {"dropout", 1}, {"linear", 1}}));
}

}  // namespace
}  // namespace ddp
