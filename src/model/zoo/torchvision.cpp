// AlexNet, VGG, SqueezeNet, DenseNet and ShuffleNet, as in torchvision.models.
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/zoo/builders.h"

namespace ddp::zoo {
namespace {

int linear_with_relu(Graph& graph, const std::string& name, int from, std::int64_t outputs) {
  return graph.relu(graph.linear(name, from, outputs));
}

// torch.nn.AdaptiveAvgPool2d to size x size, for images that it divides evenly.
int adaptive_average_pool(Graph& graph, int from, std::int64_t size, std::int64_t image) {
  const Shape in = graph.shape(from);
  check(in.height >= size && in.width >= size && in.height % size == 0 && in.width % size == 0, ExitCode::usage,
        "this model needs images whose height and width are multiples of {}", image);
  if (in.height == size && in.width == size) return from;
  const Window2d window{.height = in.height / size, .width = in.width / size, .stride = in.height / size};
  check(in.height == in.width, ExitCode::usage, "this model needs square images, or images of {}x{}", image, image);
  return graph.pool(from, {.window = window});
}

// Maximum pooling of 3x3 with stride 2 in ceil mode: a last window may extend beyond the image.
int ceil_max_pool(Graph& graph, int from) {
  const Shape in = graph.shape(from);
  Window2d window = square(3, 2);
  window.padding.bottom = (in.height - 3) % 2;
  window.padding.right = (in.width - 3) % 2;
  return graph.pool(from, {.kind = PoolSpec::Kind::maximum, .window = window});
}

int overlapping_max_pool(Graph& graph, int from) {
  return graph.pool(from, {.kind = PoolSpec::Kind::maximum, .window = square(3, 2)});
}

// Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", 2015. Zeros are
// poolings.
Graph vgg(const Shape& image, std::int64_t classes, const std::vector<std::int64_t>& channels, bool norm) {
  Graph graph(image);
  int x = graph.input();
  int index = 0;
  for (const std::int64_t count : channels) {
    if (count == 0) {
      x = graph.max_pool(x, 2);
      ++index;
      continue;
    }
    x = graph.conv(fmt::format("features.{}", index++), x, {.channels = count, .window = square(3, 1, 1)});
    if (norm) x = graph.batch_norm(fmt::format("features.{}", index++), x);
    x = graph.relu(x);
    ++index;
  }
  x = graph.flatten(adaptive_average_pool(graph, x, 7, 224));
  x = graph.dropout(linear_with_relu(graph, "classifier.0", x, 4096), 0.5F);
  x = graph.dropout(linear_with_relu(graph, "classifier.3", x, 4096), 0.5F);
  graph.linear("classifier.6", x, classes);
  graph.set_initial_weights({Initial::Kind::kaiming_fan_out, 1});
  graph.set_initial_biases({Initial::Kind::constant, 0});
  for (const char* name : {"classifier.0.weight", "classifier.3.weight", "classifier.6.weight"}) {
    graph.parameter(name).initial = {Initial::Kind::normal, 0.01F};
  }
  return graph;
}

// A block of SqueezeNet.
int fire(Graph& graph, int index, int from, std::int64_t squeezed, std::int64_t expanded) {
  const std::string name = fmt::format("features.{}.", index);
  const int x = graph.relu(graph.conv(name + "squeeze", from, {.channels = squeezed}));
  const int one = graph.relu(graph.conv(name + "expand1x1", x, {.channels = expanded}));
  const int three = graph.relu(graph.conv(name + "expand3x3", x, {.channels = expanded, .window = square(3, 1, 1)}));
  return graph.concat(one, three);
}

// A layer of DenseNet, which adds 32 channels to those before it.
int dense_layer(Graph& graph, const std::string& name, const std::vector<int>& features) {
  int x = graph.relu(graph.batch_norm(name + "norm1", graph.concat(features)));
  x = graph.conv(name + "conv1", x, {.channels = 128, .bias = false});
  x = graph.relu(graph.batch_norm(name + "norm2", x));
  return graph.conv(name + "conv2", x, {.channels = 32, .window = square(3, 1, 1), .bias = false});
}

class ShuffleNet {
 public:
  explicit ShuffleNet(const Shape& image) : graph_(image) {}

  Graph build(const std::array<std::int64_t, 5>& channels, std::int64_t classes) {
    int x = graph_.relu(conv("conv1.0", "conv1.1", graph_.input(), channels[0], 3, 2, 1));
    x = graph_.pool(x, {.kind = PoolSpec::Kind::maximum, .window = square(3, 2, 1)});
    constexpr std::array<int, 3> repeats = {4, 8, 4};
    for (std::size_t stage = 0; stage < repeats.size(); ++stage) {
      for (int i = 0; i < repeats.at(stage); ++i) {
        x = unit(fmt::format("stage{}.{}.", stage + 2, i), x, channels.at(stage + 1), i == 0);
      }
    }
    x = graph_.relu(conv("conv5.0", "conv5.1", x, channels[4], 1, 1, 1));
    graph_.linear("fc", graph_.flatten(graph_.global_average_pool(x)), classes);
    return std::move(graph_);
  }

 private:
  int conv(const std::string& name, const std::string& norm, int from, std::int64_t channels, std::int64_t kernel,
           std::int64_t stride, std::int64_t groups) {
    const ConvLayer layer{
        .channels = channels, .window = square(kernel, stride, kernel / 2), .groups = groups, .bias = false};
    return graph_.batch_norm(norm, graph_.conv(name, from, layer));
  }

  // The right branch; `halves` if it has stride 2.
  int branch2(const std::string& name, int from, std::int64_t channels, bool halves) {
    const int x = graph_.relu(conv(name + "0", name + "1", from, channels, 1, 1, 1));
    const int y = conv(name + "3", name + "4", x, channels, 3, halves ? 2 : 1, channels);
    return graph_.relu(conv(name + "5", name + "6", y, channels, 1, 1, 1));
  }

  int unit(const std::string& name, int from, std::int64_t outputs, bool halves) {
    const std::int64_t inputs = graph_.shape(from).channels;
    const std::int64_t half = outputs / 2;
    int left = 0;
    int right = from;
    if (halves) {
      const std::string branch = name + "branch1.";
      left = conv(branch + "0", branch + "1", from, inputs, 3, 2, inputs);
      left = graph_.relu(conv(branch + "2", branch + "3", left, half, 1, 1, 1));
    } else {
      left = graph_.channel_select(from, {.first = 0, .count = half});
      right = graph_.channel_select(from, {.first = half, .count = half});
    }
    return graph_.channel_shuffle(graph_.concat(left, branch2(name + "branch2.", right, half, halves)), 2);
  }

  Graph graph_;
};

}  // namespace

// Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014.
Graph alexnet(const Shape& image, std::int64_t classes) {
  Graph graph(image);
  const auto conv = [&](const char* name, int from, std::int64_t channels, const Window2d& window) {
    return graph.relu(graph.conv(name, from, {.channels = channels, .window = window}));
  };
  int x = overlapping_max_pool(graph, conv("features.0", graph.input(), 64, square(11, 4, 2)));
  x = overlapping_max_pool(graph, conv("features.3", x, 192, square(5, 1, 2)));
  x = conv("features.6", x, 384, square(3, 1, 1));
  x = conv("features.8", x, 256, square(3, 1, 1));
  x = overlapping_max_pool(graph, conv("features.10", x, 256, square(3, 1, 1)));
  x = graph.dropout(graph.flatten(adaptive_average_pool(graph, x, 6, 224)), 0.5F);
  x = graph.dropout(linear_with_relu(graph, "classifier.1", x, 4096), 0.5F);
  x = linear_with_relu(graph, "classifier.4", x, 4096);
  graph.linear("classifier.6", x, classes);
  return graph;
}

namespace {
const std::vector<std::int64_t> kVgg11 = {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0};
const std::vector<std::int64_t> kVgg16 = {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0};
}  // namespace

Graph vgg11(const Shape& image, std::int64_t classes) { return vgg(image, classes, kVgg11, false); }
Graph vgg11_bn(const Shape& image, std::int64_t classes) { return vgg(image, classes, kVgg11, true); }
Graph vgg16(const Shape& image, std::int64_t classes) { return vgg(image, classes, kVgg16, false); }
Graph vgg16_bn(const Shape& image, std::int64_t classes) { return vgg(image, classes, kVgg16, true); }

// Iandola et al., "SqueezeNet", 2016, version 1.1.
Graph squeezenet1_1(const Shape& image, std::int64_t classes) {
  Graph graph(image);
  int x = graph.relu(graph.conv("features.0", graph.input(), {.channels = 64, .window = square(3, 2)}));
  x = ceil_max_pool(graph, x);
  x = fire(graph, 4, fire(graph, 3, x, 16, 64), 16, 64);
  x = ceil_max_pool(graph, x);
  x = fire(graph, 7, fire(graph, 6, x, 32, 128), 32, 128);
  x = ceil_max_pool(graph, x);
  x = fire(graph, 10, fire(graph, 9, x, 48, 192), 48, 192);
  x = fire(graph, 12, fire(graph, 11, x, 64, 256), 64, 256);
  x = graph.relu(graph.conv("classifier.1", graph.dropout(x, 0.5F), {.channels = classes}));
  graph.flatten(graph.global_average_pool(x));
  // torch.nn.init.kaiming_uniform_: uniform in +-sqrt(6 / fan_in).
  graph.set_initial_weights({Initial::Kind::uniform_fan_in, std::sqrt(6.0F)});
  graph.set_initial_biases({Initial::Kind::constant, 0});
  graph.parameter("classifier.1.weight").initial = {Initial::Kind::normal, 0.01F};
  return graph;
}

// Huang et al., "Densely Connected Convolutional Networks", 2017.
Graph densenet121(const Shape& image, std::int64_t classes) {
  Graph graph(image);
  int x = graph.conv("features.conv0", graph.input(), {.channels = 64, .window = square(7, 2, 3), .bias = false});
  x = graph.relu(graph.batch_norm("features.norm0", x));
  x = graph.pool(x, {.kind = PoolSpec::Kind::maximum, .window = square(3, 2, 1)});
  constexpr std::array<int, 4> layers = {6, 12, 24, 16};
  for (std::size_t block = 0; block < layers.size(); ++block) {
    std::vector<int> features = {x};
    for (int i = 0; i < layers.at(block); ++i) {
      features.push_back(
          dense_layer(graph, fmt::format("features.denseblock{}.denselayer{}.", block + 1, i + 1), features));
    }
    x = graph.concat(features);
    if (block + 1 == layers.size()) break;
    const std::string name = fmt::format("features.transition{}.", block + 1);
    x = graph.relu(graph.batch_norm(name + "norm", x));
    x = graph.conv(name + "conv", x, {.channels = graph.shape(x).channels / 2, .bias = false});
    x = graph.average_pool(x, 2);
  }
  x = graph.relu(graph.batch_norm("features.norm5", x));
  graph.linear("classifier", graph.flatten(graph.global_average_pool(x)), classes);
  for (const Parameter& p : graph.parameters()) {
    if (p.shape.size() == 4) graph.parameter(p.name).initial = {Initial::Kind::kaiming_fan_in, 1};
  }
  graph.parameter("classifier.bias").initial = {Initial::Kind::constant, 0};
  return graph;
}

// Ma et al., "ShuffleNet V2", 2018, with one times its channels.
Graph shufflenet_v2(const Shape& image, std::int64_t classes) {
  return ShuffleNet(image).build({24, 116, 232, 464, 1024}, classes);
}

}  // namespace ddp::zoo
