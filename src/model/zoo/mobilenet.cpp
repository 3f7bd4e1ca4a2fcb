// MobileNetV2 (Sandler et al., "Inverted Residuals and Linear Bottlenecks", 2018), as in torchvision.models.
#include <array>
#include <string>

#include "base/error.h"
#include "model/zoo/builders.h"

namespace ddp::zoo {
namespace {

class MobilenetV2 {
 public:
  explicit MobilenetV2(const Shape& image) : graph_(image) {}

  Graph build(std::int64_t classes) {
    struct Group {
      std::int64_t expansion, channels;
      int repeats;
      std::int64_t stride;
    };
    constexpr std::array<Group, 7> groups = {
        {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}}};
    int x = unit("features.0.", graph_.input(), 32, 3, 2, 1);
    int index = 1;
    for (const Group& group : groups) {
      for (int i = 0; i < group.repeats; ++i) {
        x = inverted_residual(fmt::format("features.{}.conv.", index++), x, group.expansion, group.channels,
                              i == 0 ? group.stride : 1);
      }
    }
    x = unit(fmt::format("features.{}.", index), x, 1280, 1, 1, 1);
    x = graph_.flatten(graph_.global_average_pool(x));
    graph_.linear("classifier.1", graph_.dropout(x, 0.2F), classes);
    graph_.set_initial_weights({Initial::Kind::kaiming_fan_out, 1});
    graph_.set_initial_biases({Initial::Kind::constant, 0});
    graph_.parameter("classifier.1.weight").initial = {Initial::Kind::normal, 0.01F};
    return std::move(graph_);
  }

 private:
  int conv(const std::string& name, int from, std::int64_t channels, std::int64_t kernel, std::int64_t stride,
           std::int64_t groups) {
    return graph_.conv(
        name, from,
        {.channels = channels, .window = square(kernel, stride, kernel / 2), .groups = groups, .bias = false});
  }

  // Convolution, batch normalisation, ReLU6: a Conv2dNormActivation of torchvision, whose parts are numbered.
  int unit(const std::string& name, int from, std::int64_t channels, std::int64_t kernel, std::int64_t stride,
           std::int64_t groups) {
    const int x = conv(name + "0", from, channels, kernel, stride, groups);
    return graph_.activation(graph_.batch_norm(name + "1", x), Activation::relu6);
  }

  int inverted_residual(const std::string& name, int from, std::int64_t expansion, std::int64_t channels,
                        std::int64_t stride) {
    const std::int64_t inputs = graph_.shape(from).channels;
    const std::int64_t hidden = inputs * expansion;
    int part = 0;
    int x = from;
    if (expansion != 1) x = unit(fmt::format("{}{}.", name, part++), x, hidden, 1, 1, 1);
    x = unit(fmt::format("{}{}.", name, part++), x, hidden, 3, stride, hidden);
    x = conv(fmt::format("{}{}", name, part++), x, channels, 1, 1, 1);
    x = graph_.batch_norm(fmt::format("{}{}", name, part++), x);
    return stride == 1 && inputs == channels ? graph_.add(x, from) : x;
  }

  Graph graph_;
};

}  // namespace

Graph mobilenet_v2(const Shape& image, std::int64_t classes) { return MobilenetV2(image).build(classes); }

}  // namespace ddp::zoo
