#include "model/graph.h"

#include <functional>
#include <numeric>

#include "base/error.h"

namespace ddp {
namespace {

std::string text_of(const Shape& s) { return fmt::format("{}x{}x{}", s.channels, s.height, s.width); }

}  // namespace

std::int64_t Parameter::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Graph::Graph(const Shape& input) { add("input", InputLayer{}, -1, input); }

int Graph::add(const std::string& name, const LayerKind& kind, int from, const Shape& output) {
  layers_.push_back({name, kind, from, output});
  return static_cast<int>(layers_.size()) - 1;
}

int Graph::conv(const std::string& name, int from, const ConvLayer& layer) {
  const Shape& in = layers_.at(static_cast<std::size_t>(from)).output;
  const std::int64_t height = in.height + 2 * layer.padding - layer.kernel;
  const std::int64_t width = in.width + 2 * layer.padding - layer.kernel;
  check(height >= 0 && width >= 0, ExitCode::usage,
        "layer {}: a {}x{} kernel does not fit its {} input; the images are too small for this model", name,
        layer.kernel, layer.kernel, text_of(in));
  const Shape out{layer.channels, height / layer.stride + 1, width / layer.stride + 1};
  const int index = add(name, layer, from, out);
  const std::int64_t area = layer.kernel * layer.kernel;
  add_parameters(name, index, {layer.channels, in.channels, layer.kernel, layer.kernel}, in.channels * area,
                 layer.channels * area);
  return index;
}

int Graph::linear(const std::string& name, int from, std::int64_t outputs) {
  const Shape& in = layers_.at(static_cast<std::size_t>(from)).output;
  check(in.height == 1 && in.width == 1, ExitCode::usage, "layer {}: its input is {}; flatten it first", name,
        text_of(in));
  const int index = add(name, LinearLayer{outputs}, from, {outputs, 1, 1});
  add_parameters(name, index, {outputs, in.channels}, in.channels, outputs);
  return index;
}

int Graph::relu(int from) { return add("relu", ReluLayer{}, from, layers_.at(static_cast<std::size_t>(from)).output); }

int Graph::pool(int from, const PoolLayer& layer) {
  const Shape& in = layers_.at(static_cast<std::size_t>(from)).output;
  check(in.height >= layer.window && in.width >= layer.window, ExitCode::usage,
        "pooling: a {}x{} window does not fit its {} input; the images are too small for this model", layer.window,
        layer.window, text_of(in));
  return add(
      "pool", layer, from,
      {in.channels, (in.height - layer.window) / layer.stride + 1, (in.width - layer.window) / layer.stride + 1});
}

int Graph::average_pool(int from, std::int64_t window) {
  return pool(from, {PoolLayer::Kind::average, window, window});
}

int Graph::max_pool(int from, std::int64_t window) { return pool(from, {PoolLayer::Kind::maximum, window, window}); }

int Graph::flatten(int from) {
  return add("flatten", FlattenLayer{}, from, {layers_.at(static_cast<std::size_t>(from)).output.elements(), 1, 1});
}

void Graph::add_parameters(const std::string& name, int layer, const std::vector<std::int64_t>& weight,
                           std::int64_t fan_in, std::int64_t fan_out) {
  for (const bool bias : {false, true}) {
    Parameter parameter{name + (bias ? ".bias" : ".weight"),
                        bias ? std::vector<std::int64_t>{weight.front()} : weight,
                        parameter_count_,
                        fan_in,
                        fan_out,
                        bias,
                        layer};
    parameter_count_ += parameter.elements();
    parameters_.push_back(std::move(parameter));
  }
}

}  // namespace ddp
