#include "model/zoo/builders.h"

namespace ddp::zoo {

// LeNet as in "Dive into Deep Learning" (d2l.ai), chapter "Training on Multiple GPUs".
Graph lenet(const Shape& image, std::int64_t classes) {
  Graph graph(image);
  int x = graph.relu(graph.conv("conv1", graph.input(), {.channels = 20, .window = square(3)}));
  x = graph.average_pool(x, 2);
  x = graph.relu(graph.conv("conv2", x, {.channels = 50, .window = square(5)}));
  x = graph.average_pool(x, 2);
  x = graph.relu(graph.linear("fc1", graph.flatten(x), 128));
  graph.linear("fc2", x, classes);
  return graph;
}

// A network for MNIST in the style of TF-Slim: batch normalisation without scale after all layers but the last, "SAME"
// convolutions, all weights from a truncated normal distribution. L2 applies to weights only.
Graph mnist_slim(const Shape& image, std::int64_t classes) {
  constexpr BatchNormLayer kNorm{.epsilon = 1e-3F, .momentum = 0.1F, .scale = false};
  Graph graph(image);
  int x = graph.conv("conv1", graph.input(), {.channels = 6, .window = square(5, 1, 2), .bias = false});
  x = graph.max_pool(graph.relu(graph.batch_norm("bn1", x, kNorm)), 2);
  x = graph.conv("conv2", x, {.channels = 12, .window = square(5, 1, 2), .bias = false});
  x = graph.max_pool(graph.relu(graph.batch_norm("bn2", x, kNorm)), 2);
  x = graph.linear("fc1", graph.flatten(x), 100, /*bias=*/false);
  x = graph.dropout(graph.relu(graph.batch_norm("bn3", x, kNorm)), 0.5F);
  graph.linear("fc2", x, classes);
  graph.set_initial_weights({Initial::Kind::truncated_normal, 0.01F});
  graph.set_initial_biases({Initial::Kind::constant, 0});
  for (const char* name : {"bn1.bias", "bn2.bias", "bn3.bias", "fc2.bias"}) graph.parameter(name).decay_scale = 0;
  return graph;
}

// The MNIST network of TensorFlow's multi-tower examples.
Graph mnist_towers(const Shape& image, std::int64_t classes) {
  Graph graph(image);
  int x = graph.relu(graph.conv("conv1", graph.input(), {.channels = 12, .window = square(5, 1, 2)}));
  x = graph.max_pool(x, 2);
  x = graph.relu(graph.conv("conv2", x, {.channels = 24, .window = square(3, 1, 1)}));
  x = graph.max_pool(x, 2);
  x = graph.relu(graph.linear("fc1", graph.flatten(x), 100));
  graph.linear("fc2", graph.dropout(x, 0.5F), classes);
  graph.set_initial_weights({Initial::Kind::truncated_normal, 0.1F});
  graph.set_initial_biases({Initial::Kind::constant, 0.1F});
  return graph;
}

}  // namespace ddp::zoo
