#include "model/zoo/builders.h"

namespace ddp::zoo {
namespace {

// TensorFlow's "SAME" padding for 3x3 max pooling with stride 2: the output size is rounded up, and odd padding is
// added at the bottom and right.
int pool3_same(Graph& graph, int from) {
  PoolLayer layer{.kind = PoolSpec::Kind::maximum, .window = square(3, 2)};
  const auto padding = [](std::int64_t size) { return size % 2 == 0 ? 1 : 2; };
  const std::int64_t rows = padding(graph.shape(from).height);
  const std::int64_t columns = padding(graph.shape(from).width);
  layer.window.padding = {rows / 2, columns / 2, rows - rows / 2, columns - columns / 2};
  return graph.pool(from, layer);
}

}  // namespace

// The network of TensorFlow's CIFAR-10 tutorial (tensorflow/models, tutorials/image/cifar10), meant for crops of 24x24.
// L2 applies only to the weights of local3 and local4.
Graph cifar10_tutorial(const Shape& image, std::int64_t classes) {
  // alpha is TensorFlow's 0.001 / 9 for each of the 9 channels.
  constexpr LrnLayer kNorm{.size = 9, .alpha = 0.001F, .beta = 0.75F, .k = 1};
  Graph graph(image);
  int x = graph.relu(graph.conv("conv1", graph.input(), {.channels = 64, .window = square(5, 1, 2)}));
  x = graph.lrn(pool3_same(graph, x), kNorm);
  x = graph.relu(graph.conv("conv2", x, {.channels = 64, .window = square(5, 1, 2)}));
  x = pool3_same(graph, graph.lrn(x, kNorm));
  x = graph.relu(graph.linear("local3", graph.flatten(x), 384));
  x = graph.relu(graph.linear("local4", x, 192));
  graph.linear("softmax_linear", x, classes);

  const auto begin = [&](const std::string& layer, float deviation, float bias, float decay) {
    graph.parameter(layer + ".weight").initial = {Initial::Kind::truncated_normal, deviation};
    graph.parameter(layer + ".weight").decay_scale = decay;
    graph.parameter(layer + ".bias").initial = {Initial::Kind::constant, bias};
    graph.parameter(layer + ".bias").decay_scale = 0;
  };
  begin("conv1", 0.05F, 0, 0);
  begin("conv2", 0.05F, 0.1F, 0);
  begin("local3", 0.04F, 0.1F, 1);
  begin("local4", 0.04F, 0.1F, 1);
  begin("softmax_linear", 1.0F / 192, 0, 0);
  return graph;
}

}  // namespace ddp::zoo
