// A network as a static graph of layers, in the terms of its user: what PyTorch would call the modules.
//
//   Graph graph({1, 28, 28});
//   int x = graph.conv("conv1", graph.input(), {.channels = 20, .kernel = 3});
//   x = graph.relu(x);
//   x = graph.average_pool(x, 2);
//   x = graph.linear("fc", graph.flatten(x), 10);
//   graph.parameters();  // conv1.weight [20,1,3,3], conv1.bias [20], fc.weight ..., in PyTorch's order
//
// Shapes are inferred as layers are added; a layer that does not fit throws Error(usage) naming it.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "backend/tensor.h"

namespace ddp {

struct ConvLayer {
  std::int64_t channels = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
};
struct LinearLayer {
  std::int64_t outputs = 0;
};
struct ReluLayer {};
struct PoolLayer {
  enum class Kind { average, maximum };
  Kind kind = Kind::average;
  std::int64_t window = 2;
  std::int64_t stride = 2;
};
struct FlattenLayer {};
struct InputLayer {};

using LayerKind = std::variant<InputLayer, ConvLayer, LinearLayer, ReluLayer, PoolLayer, FlattenLayer>;

struct Layer {
  std::string name;
  LayerKind kind;
  int input = -1;  // index of the layer whose output it reads
  Shape output;
};

// A tensor of parameters, at its place in the flat buffer.
struct Parameter {
  std::string name;                 // e.g. "conv1.weight"
  std::vector<std::int64_t> shape;  // PyTorch's
  std::int64_t offset = 0;          // floats from the beginning of the flat buffer
  std::int64_t fan_in = 0;          // of its layer
  std::int64_t fan_out = 0;
  bool bias = false;
  int layer = 0;
  float lr_scale = 1;  // factors on the learning rate and on the weight decay, Caffe's lr_mult and decay_mult
  float decay_scale = 1;

  std::int64_t elements() const;
};

class Graph {
 public:
  explicit Graph(const Shape& input);

  int input() const { return 0; }
  int conv(const std::string& name, int from, const ConvLayer& layer);
  int linear(const std::string& name, int from, std::int64_t outputs);
  int relu(int from);
  int average_pool(int from, std::int64_t window);
  int max_pool(int from, std::int64_t window);
  int flatten(int from);

  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  // Elements of all parameters together.
  std::int64_t parameter_count() const { return parameter_count_; }
  // The number of logits.
  std::int64_t classes() const { return layers_.back().output.channels; }

 private:
  int add(const std::string& name, const LayerKind& kind, int from, const Shape& output);
  int pool(int from, const PoolLayer& layer);
  void add_parameters(const std::string& name, int layer, const std::vector<std::int64_t>& weight, std::int64_t fan_in,
                      std::int64_t fan_out);

  std::vector<Layer> layers_;
  std::vector<Parameter> parameters_;
  std::int64_t parameter_count_ = 0;
};

}  // namespace ddp
