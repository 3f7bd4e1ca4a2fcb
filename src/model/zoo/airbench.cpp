#include <string>

#include "model/zoo/builders.h"

namespace ddp::zoo {
namespace {

constexpr BatchNormLayer kAirbenchNorm{.epsilon = 1e-12F, .momentum = 0.4F, .scale = false};

int conv_norm(Graph& graph, const std::string& group, const char* number, int from, std::int64_t channels, bool pools) {
  int x = graph.conv(group + ".conv" + number, from, {.channels = channels, .window = square(3, 1, 1), .bias = false});
  if (pools) x = graph.max_pool(x, 2);
  return graph.gelu(graph.batch_norm(group + ".norm" + number, x, kAirbenchNorm));
}

// airbench94 for images of 32x32 (K. Jordan: "94% on CIFAR-10 in 3.29 Seconds on a Single GPU", 2024, and
// github.com/KellerJordan/cifar10-airbench): a whitening convolution, which the recipe does not train, and three groups
// of two convolutions each; batch normalisation without scale; small logits. Each 3x3 convolution first passes its inputs
// on.
Graph airbench(const Shape& image, std::int64_t classes, float logits, const Initial& head) {
  Graph graph(image);
  const std::int64_t patch = image.channels * 4;
  int x = graph.gelu(graph.conv("whiten", graph.input(), {.channels = 2 * patch, .window = square(2)}));
  for (const auto& [group, channels] : {std::pair("group1", 64), std::pair("group2", 256), std::pair("group3", 256)}) {
    x = conv_norm(graph, group, "1", x, channels, /*pools=*/true);
    x = conv_norm(graph, group, "2", x, channels, /*pools=*/false);
  }
  // The factor of the logits, on what they are computed from.
  x = graph.affine("scale", graph.max_pool(x, 3), {"scale.weight", {256}, /*fixed=*/true}, nullptr);
  graph.linear("head", graph.flatten(x), classes, /*bias=*/false);
  graph.set_initial_weights({Initial::Kind::dirac});
  graph.parameter("head.weight").initial = head;
  graph.parameter("scale.weight").initial = {Initial::Kind::constant, logits};
  graph.parameter("whiten.weight").initial = {Initial::Kind::whitening};
  graph.parameter("whiten.bias").initial = {Initial::Kind::constant, 0};
  return graph;
}

}  // namespace

Graph airbench94(const Shape& image, std::int64_t classes) { return airbench(image, classes, 1.0F / 9, {}); }

// The network of airbench94_muon.py.
Graph airbench94_muon(const Shape& image, std::int64_t classes) {
  return airbench(image, classes, 1.0F / 256, {Initial::Kind::deviation, 1});
}

}  // namespace ddp::zoo
