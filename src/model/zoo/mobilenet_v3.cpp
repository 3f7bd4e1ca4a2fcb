// MobileNetV3 (Howard et al., "Searching for MobileNetV3", 2019), as in torchvision.models.
#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/zoo/builders.h"

namespace ddp::zoo {
namespace {

struct Block {
  std::int64_t kernel, expanded, channels;
  bool squeezes;
  bool hardswish;  // otherwise ReLU
  std::int64_t stride;
};

constexpr Block kLarge[] = {{3, 16, 16, false, false, 1}, {3, 64, 24, false, false, 2}, {3, 72, 24, false, false, 1},
                            {5, 72, 40, true, false, 2},  {5, 120, 40, true, false, 1}, {5, 120, 40, true, false, 1},
                            {3, 240, 80, false, true, 2}, {3, 200, 80, false, true, 1}, {3, 184, 80, false, true, 1},
                            {3, 184, 80, false, true, 1}, {3, 480, 112, true, true, 1}, {3, 672, 112, true, true, 1},
                            {5, 672, 160, true, true, 2}, {5, 960, 160, true, true, 1}, {5, 960, 160, true, true, 1}};
constexpr Block kSmall[] = {{3, 16, 16, true, false, 2}, {3, 72, 24, false, false, 2}, {3, 88, 24, false, false, 1},
                            {5, 96, 40, true, true, 2},  {5, 240, 40, true, true, 1},  {5, 240, 40, true, true, 1},
                            {5, 120, 48, true, true, 1}, {5, 144, 48, true, true, 1},  {5, 288, 96, true, true, 2},
                            {5, 576, 96, true, true, 1}, {5, 576, 96, true, true, 1}};

// The multiple of 8 next to a quarter of `channels`, but not less than 90 % of it.
std::int64_t squeezed_channels(std::int64_t channels) {
  const std::int64_t wanted = channels / 4;
  const std::int64_t rounded = std::max<std::int64_t>(8, (wanted + 4) / 8 * 8);
  return 10 * rounded < 9 * wanted ? rounded + 8 : rounded;
}

class MobilenetV3 {
 public:
  explicit MobilenetV3(const Shape& image) : graph_(image) {}

  Graph build(std::span<const Block> blocks, std::int64_t hidden, std::int64_t classes) {
    int x = hardswish(unit("features.0.", graph_.input(), 16, 3, 2, 1));
    int index = 1;
    for (const Block& block : blocks) x = residual(fmt::format("features.{}.block.", index++), x, block);
    x = hardswish(unit(fmt::format("features.{}.", index), x, 6 * graph_.shape(x).channels, 1, 1, 1));
    x = hardswish(graph_.linear("classifier.0", graph_.flatten(graph_.global_average_pool(x)), hidden));
    graph_.linear("classifier.3", graph_.dropout(x, 0.2F), classes);
    graph_.set_initial_weights({Initial::Kind::kaiming_fan_out, 1});
    graph_.set_initial_biases({Initial::Kind::constant, 0});
    for (const char* name : {"classifier.0.weight", "classifier.3.weight"}) {
      graph_.parameter(name).initial = {Initial::Kind::normal, 0.01F};
    }
    return std::move(graph_);
  }

 private:
  int hardswish(int from) { return graph_.pointwise(from, PointwiseFunction::hardswish); }
  int activation(int from, const Block& block) { return block.hardswish ? hardswish(from) : graph_.relu(from); }

  // Convolution and batch normalisation.
  int unit(const std::string& name, int from, std::int64_t channels, std::int64_t kernel, std::int64_t stride,
           std::int64_t groups) {
    const ConvLayer layer{
        .channels = channels, .window = square(kernel, stride, kernel / 2), .groups = groups, .bias = false};
    return graph_.batch_norm(name + "1", graph_.conv(name + "0", from, layer), {.epsilon = 1e-3F, .momentum = 0.01F});
  }

  int residual(const std::string& name, int from, const Block& block) {
    const std::int64_t inputs = graph_.shape(from).channels;
    int part = 0;
    const auto next = [&] { return fmt::format("{}{}.", name, part++); };
    int x = from;
    if (block.expanded != inputs) x = activation(unit(next(), x, block.expanded, 1, 1, 1), block);
    x = activation(unit(next(), x, block.expanded, block.kernel, block.stride, block.expanded), block);
    if (block.squeezes) {
      const std::string squeeze = next();
      const std::int64_t squeezed = squeezed_channels(block.expanded);
      const int pooled = graph_.global_average_pool(x);
      const int narrow = graph_.relu(graph_.conv(squeeze + "fc1", pooled, {.channels = squeezed}));
      const int scale = graph_.conv(squeeze + "fc2", narrow, {.channels = block.expanded});
      x = graph_.product(x, graph_.pointwise(scale, PointwiseFunction::hardsigmoid));
    }
    x = unit(next(), x, block.channels, 1, 1, 1);
    return block.stride == 1 && inputs == block.channels ? graph_.add(x, from) : x;
  }

  Graph graph_;
};

}  // namespace

Graph mobilenet_v3_large(const Shape& image, std::int64_t classes) {
  return MobilenetV3(image).build(kLarge, 1280, classes);
}
Graph mobilenet_v3_small(const Shape& image, std::int64_t classes) {
  return MobilenetV3(image).build(kSmall, 1024, classes);
}

}  // namespace ddp::zoo
