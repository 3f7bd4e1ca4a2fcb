// Residual networks (He et al., "Deep Residual Learning for Image Recognition", 2016).
#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "model/zoo/builders.h"

namespace ddp::zoo {
namespace {

// The shortcut is built before the branch it is added to, so that the branch's last batch normalisation, the sum and
// ReLU are adjacent and fused into one operator.
class TorchvisionResnet {
 public:
  // `widening`: of the 3x3 convolutions in bottlenecks (Zagoruyko and Komodakis, "Wide Residual Networks", 2016).
  TorchvisionResnet(const Shape& image, bool bottleneck, std::int64_t widening = 1)
      : graph_(image), bottleneck_(bottleneck), widening_(widening) {}

  Graph build(const std::array<int, 4>& blocks, std::int64_t classes) {
    int x = graph_.conv("conv1", graph_.input(), {.channels = 64, .window = square(7, 2, 3), .bias = false});
    x = graph_.relu(graph_.batch_norm("bn1", x));
    x = graph_.pool(x, {.kind = PoolSpec::Kind::maximum, .window = square(3, 2, 1)});
    for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
      const std::int64_t width = std::int64_t{64} << stage;
      for (int i = 0; i < blocks.at(stage); ++i) {
        const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        x = block(fmt::format("layer{}.{}.", stage + 1, i), x, width, stride);
      }
    }
    graph_.linear("fc", graph_.flatten(graph_.global_average_pool(x)), classes);
    for (const Parameter& p : graph_.parameters()) {
      if (p.shape.size() == 4) graph_.parameter(p.name).initial = {Initial::Kind::kaiming_fan_out, 1};
    }
    return std::move(graph_);
  }

 private:
  int conv(const std::string& name, int from, std::int64_t channels, std::int64_t kernel, std::int64_t stride) {
    return graph_.conv(name, from, {.channels = channels, .window = square(kernel, stride, kernel / 2), .bias = false});
  }

  int block(const std::string& name, int from, std::int64_t width, std::int64_t stride) {
    const std::int64_t channels = bottleneck_ ? 4 * width : width;
    int shortcut = from;
    if (stride != 1 || graph_.shape(from).channels != channels) {
      shortcut = conv(name + "downsample.0", from, channels, 1, stride);
      shortcut = graph_.batch_norm(name + "downsample.1", shortcut);
    }
    int x = from;
    if (bottleneck_) {
      x = graph_.relu(graph_.batch_norm(name + "bn1", conv(name + "conv1", x, widening_ * width, 1, 1)));
      x = graph_.relu(graph_.batch_norm(name + "bn2", conv(name + "conv2", x, widening_ * width, 3, stride)));
      x = graph_.batch_norm(name + "bn3", conv(name + "conv3", x, channels, 1, 1));
    } else {
      x = graph_.relu(graph_.batch_norm(name + "bn1", conv(name + "conv1", x, width, 3, stride)));
      x = graph_.batch_norm(name + "bn2", conv(name + "conv2", x, width, 3, 1));
    }
    return graph_.relu(graph_.add(x, shortcut));
  }

  Graph graph_;
  bool bottleneck_;
  std::int64_t widening_;
};

}  // namespace

// As in torchvision.models.
Graph resnet18(const Shape& image, std::int64_t classes) {
  return TorchvisionResnet(image, false).build({2, 2, 2, 2}, classes);
}
Graph resnet34(const Shape& image, std::int64_t classes) {
  return TorchvisionResnet(image, false).build({3, 4, 6, 3}, classes);
}
Graph resnet50(const Shape& image, std::int64_t classes) {
  return TorchvisionResnet(image, true).build({3, 4, 6, 3}, classes);
}

Graph wide_resnet50_2(const Shape& image, std::int64_t classes) {
  return TorchvisionResnet(image, true, 2).build({3, 4, 6, 3}, classes);
}

// ResNet-18 as in "Dive into Deep Learning" (d2l.ai), chapter "Concise Implementation for Multiple GPUs": a 3x3 stem,
// no maximum pooling, convolutions with bias.
Graph resnet18_d2l(const Shape& image, std::int64_t classes) {
  Graph graph(image);
  int x = graph.conv("0", graph.input(), {.channels = 64, .window = square(3, 1, 1)});
  x = graph.relu(graph.batch_norm("1", x));
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t channels = std::int64_t{64} << stage;
    for (int i = 0; i < 2; ++i) {
      const std::string name = fmt::format("resnet_block{}.{}.", stage + 1, i);
      const bool halves = stage > 0 && i == 0;
      const std::int64_t stride = halves ? 2 : 1;
      const int shortcut =
          halves ? graph.conv(name + "conv3", x, {.channels = channels, .window = square(1, stride)}) : x;
      x = graph.conv(name + "conv1", x, {.channels = channels, .window = square(3, stride, 1)});
      x = graph.relu(graph.batch_norm(name + "bn1", x));
      x = graph.conv(name + "conv2", x, {.channels = channels, .window = square(3, 1, 1)});
      x = graph.relu(graph.add(graph.batch_norm(name + "bn2", x), shortcut));
    }
  }
  graph.linear("fc.1", graph.flatten(graph.global_average_pool(x)), classes);
  graph.set_initial_weights({Initial::Kind::normal, 0.01F});
  return graph;
}

// The nine-layer residual network for CIFAR-10 of many tutorials, after David Page's "How to Train Your ResNet" (2018):
// max pooling instead of strides, sums without a following ReLU.
Graph resnet9(const Shape& image, std::int64_t classes) {
  Graph graph(image);
  const auto block = [&](const std::string& name, int from, std::int64_t channels, bool pool) {
    int x = graph.conv(name + ".0", from, {.channels = channels, .window = square(3, 1, 1)});
    x = graph.relu(graph.batch_norm(name + ".1", x));
    return pool ? graph.max_pool(x, 2) : x;
  };
  int x = block("conv1", graph.input(), 64, false);
  x = block("conv2", x, 128, true);
  x = graph.add(block("res1.1", block("res1.0", x, 128, false), 128, false), x);
  x = block("conv3", x, 256, true);
  x = block("conv4", x, 512, true);
  x = graph.add(block("res2.1", block("res2.0", x, 512, false), 512, false), x);
  const Shape& last = graph.shape(x);
  x = graph.pool(x, {.kind = PoolSpec::Kind::maximum,
                     .window = {.height = std::min<std::int64_t>(4, last.height),
                                .width = std::min<std::int64_t>(4, last.width),
                                .stride = 4}});
  graph.linear("classifier.2", graph.flatten(x), classes);
  return graph;
}

}  // namespace ddp::zoo
