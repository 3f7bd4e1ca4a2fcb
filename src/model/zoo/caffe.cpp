// Networks of Caffe's examples.
#include <array>
#include <string>
#include <utility>

#include "model/zoo/builders.h"

namespace ddp::zoo {
namespace {

// Caffe rounds the number of windows up, except for a window that would start beyond the image.
int caffe_max_pool(Graph& graph, int from, std::int64_t window, std::int64_t stride) {
  PoolLayer layer{.kind = PoolSpec::Kind::maximum, .window = square(window, stride)};
  const auto missing = [&](std::int64_t size) {
    const std::int64_t rest = size < window ? window - size : (size - window) % stride;
    return size < window || rest == 0 ? std::int64_t{0} : stride - rest;
  };
  layer.window.padding.bottom = missing(graph.shape(from).height);
  layer.window.padding.right = missing(graph.shape(from).width);
  return graph.pool(from, layer);
}

// Biases have twice the learning rate; those of caffenet have no weight decay.
void set_bias_rates(Graph& graph, float decay) {
  for (const Parameter& p : graph.parameters()) {
    if (!p.bias) continue;
    Parameter& bias = graph.parameter(p.name);
    bias.lr_scale = 2;
    bias.decay_scale = decay;
  }
}

}  // namespace

// examples/mnist/lenet_train_test.prototxt
Graph caffe_lenet(const Shape& image, std::int64_t classes) {
  Graph graph(image);
  int x = graph.conv("conv1", graph.input(), {.channels = 20, .window = square(5)});
  x = caffe_max_pool(graph, x, 2, 2);
  x = graph.conv("conv2", x, {.channels = 50, .window = square(5)});
  x = caffe_max_pool(graph, x, 2, 2);
  x = graph.relu(graph.linear("ip1", graph.flatten(x), 500));
  graph.linear("ip2", x, classes);
  graph.set_initial_weights({Initial::Kind::xavier_caffe, 1});
  graph.set_initial_biases({Initial::Kind::constant, 0});
  set_bias_rates(graph, 1);
  return graph;
}

// models/bvlc_reference_caffenet/train_val.prototxt (AlexNet with pooling before normalisation), meant for 227x227.
Graph caffenet(const Shape& image, std::int64_t classes) {
  constexpr LrnLayer kNorm{.size = 5, .alpha = 1e-4F, .beta = 0.75F, .k = 1};
  Graph graph(image);
  int x = graph.relu(graph.conv("conv1", graph.input(), {.channels = 96, .window = square(11, 4)}));
  x = graph.lrn(caffe_max_pool(graph, x, 3, 2), kNorm);
  x = graph.relu(graph.conv("conv2", x, {.channels = 256, .window = square(5, 1, 2), .groups = 2}));
  x = graph.lrn(caffe_max_pool(graph, x, 3, 2), kNorm);
  x = graph.relu(graph.conv("conv3", x, {.channels = 384, .window = square(3, 1, 1)}));
  x = graph.relu(graph.conv("conv4", x, {.channels = 384, .window = square(3, 1, 1), .groups = 2}));
  x = graph.relu(graph.conv("conv5", x, {.channels = 256, .window = square(3, 1, 1), .groups = 2}));
  x = caffe_max_pool(graph, x, 3, 2);
  x = graph.dropout(graph.relu(graph.linear("fc6", graph.flatten(x), 4096)), 0.5F);
  x = graph.dropout(graph.relu(graph.linear("fc7", x, 4096)), 0.5F);
  graph.linear("fc8", x, classes);

  graph.set_initial_weights({Initial::Kind::normal, 0.01F});
  graph.set_initial_biases({Initial::Kind::constant, 0});
  for (const char* layer : {"fc6", "fc7"}) {
    graph.parameter(std::string(layer) + ".weight").initial = {Initial::Kind::normal, 0.005F};
  }
  for (const char* layer : {"conv2", "conv4", "conv5", "fc6", "fc7"}) {
    graph.parameter(std::string(layer) + ".bias").initial = {Initial::Kind::constant, 1};
  }
  set_bias_rates(graph, 0);
  return graph;
}

}  // namespace ddp::zoo
