// EfficientNet-B0 (Tan and Le, "EfficientNet: Rethinking Model Scaling", 2019), as in torchvision.models.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"
#include "model/zoo/builders.h"

namespace ddp::zoo {
namespace {

struct BlockGroup {
  std::int64_t expansion, kernel, stride, channels;
  int repeats;
};

constexpr BlockGroup kGroups[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                                  {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
// Highest rate of stochastic depth; it rises from block to block.
constexpr float kEfficientNetDepthRate = 0.2F;

class EfficientNet {
 public:
  explicit EfficientNet(const Shape& image) : graph_(image) {}

  Graph build(std::int64_t classes) {
    int x = silu(unit("features.0.", graph_.input(), 32, 3, 2, 1));
    int blocks = 0;
    for (const BlockGroup& group : kGroups) blocks += group.repeats;
    int index = 1;
    int block = 0;
    for (const BlockGroup& group : kGroups) {
      for (int i = 0; i < group.repeats; ++i) {
        const float rate = kEfficientNetDepthRate * static_cast<float>(block++) / static_cast<float>(blocks);
        x = inverted_residual(fmt::format("features.{}.{}.block.", index, i), x, group, i == 0 ? group.stride : 1,
                              rate);
      }
      ++index;
    }
    x = silu(unit(fmt::format("features.{}.", index), x, 1280, 1, 1, 1));
    x = graph_.flatten(graph_.global_average_pool(x));
    graph_.linear("classifier.1", graph_.dropout(x, 0.2F), classes);
    graph_.set_initial_weights({Initial::Kind::kaiming_fan_out, 1});
    graph_.set_initial_biases({Initial::Kind::constant, 0});
    // Uniform in +-1/sqrt(outputs).
    Parameter& last = graph_.parameter("classifier.1.weight");
    const double ratio = static_cast<double>(last.fan_in) / static_cast<double>(last.fan_out);
    last.initial = {Initial::Kind::uniform_fan_in, static_cast<float>(std::sqrt(ratio))};
    return std::move(graph_);
  }

 private:
  int silu(int from) { return graph_.pointwise(from, PointwiseFunction::silu); }

  // Convolution and batch normalisation.
  int unit(const std::string& name, int from, std::int64_t channels, std::int64_t kernel, std::int64_t stride,
           std::int64_t groups) {
    const ConvLayer layer{
        .channels = channels, .window = square(kernel, stride, kernel / 2), .groups = groups, .bias = false};
    return graph_.batch_norm(name + "1", graph_.conv(name + "0", from, layer));
  }

  int inverted_residual(const std::string& name, int from, const BlockGroup& group, std::int64_t stride, float rate) {
    const std::int64_t inputs = graph_.shape(from).channels;
    const std::int64_t hidden = inputs * group.expansion;
    int part = 0;
    const auto next = [&] { return fmt::format("{}{}.", name, part++); };
    int x = from;
    if (group.expansion != 1) x = silu(unit(next(), x, hidden, 1, 1, 1));
    x = silu(unit(next(), x, hidden, group.kernel, stride, hidden));
    const std::string squeeze = next();
    const std::int64_t squeezed = std::max<std::int64_t>(1, inputs / 4);
    const int narrow = silu(graph_.conv(squeeze + "fc1", graph_.global_average_pool(x), {.channels = squeezed}));
    const int scale = graph_.conv(squeeze + "fc2", narrow, {.channels = hidden});
    x = graph_.product(x, graph_.activation(scale, Activation::sigmoid));
    x = unit(next(), x, group.channels, 1, 1, 1);
    if (stride != 1 || inputs != group.channels) return x;
    return graph_.add(graph_.dropout(x, rate, DropoutUnit::sample), from);
  }

  Graph graph_;
};

}  // namespace

Graph efficientnet_b0(const Shape& image, std::int64_t classes) { return EfficientNet(image).build(classes); }

}  // namespace ddp::zoo
