#include "model/graph.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace ddp {
namespace {

std::string text_of(const Shape& s) { return fmt::format("{}x{}x{}", s.channels, s.height, s.width); }

Shape slide(const std::string& what, const Shape& in, const Window2d& window) {
  check(window.fits(in), ExitCode::usage,
        "{}: a {}x{} window does not fit into its {} input; the images are too small for this model", what,
        window.height, window.width, text_of(in));
  return window.slide(in);
}

}  // namespace

std::int64_t Parameter::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t Parameter::flat_elements() const {
  return (elements() + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
}

Graph::Graph(const Shape& input) { add_layer("input", InputLayer{}, {}, input); }

int Graph::add_layer(const std::string& name, const LayerKind& kind, std::vector<int> inputs, const Shape& output) {
  layers_.push_back({name, kind, std::move(inputs), output});
  return static_cast<int>(layers_.size()) - 1;
}

void Graph::add_parameter(Parameter parameter) {
  parameter.offset = flat_elements_;
  parameter_count_ += parameter.elements();
  flat_elements_ += parameter.flat_elements();
  parameters_.push_back(std::move(parameter));
}

void Graph::add_norm_parameter(int layer, bool bias, bool fixed) {
  const Layer& norm = layers_[static_cast<std::size_t>(layer)];
  Parameter parameter;
  parameter.name = norm.name + (bias ? ".bias" : ".weight");
  parameter.shape = {norm.output.channels};
  parameter.fan_in = parameter.fan_out = norm.output.channels;
  parameter.bias = bias;
  parameter.layer = layer;
  parameter.norm = true;
  parameter.initial = {Initial::Kind::constant, bias ? 0.0F : 1.0F};
  parameter.fixed = fixed;
  if (fixed) parameter.lr_scale = parameter.decay_scale = 0;
  add_parameter(parameter);
}

int Graph::conv(const std::string& name, int from, const ConvLayer& layer) {
  const Shape& in = shape(from);
  check(layer.groups > 0 && in.channels % layer.groups == 0 && layer.channels % layer.groups == 0, ExitCode::usage,
        "layer {}: {} channels to {} cannot be divided into {} groups", name, in.channels, layer.channels,
        layer.groups);
  Shape out = slide("layer " + name, in, layer.window);
  out.channels = layer.channels;
  const std::int64_t area = layer.window.elements();
  const std::int64_t group = in.channels / layer.groups;
  Parameter parameter;
  parameter.name = name + ".weight";
  parameter.shape = {layer.channels, group, layer.window.height, layer.window.width};
  parameter.fan_in = group * area;
  parameter.fan_out = layer.channels * area;  // as in PyTorch, regardless of groups
  parameter.layer = add_layer(name, layer, {from}, out);
  const int index = parameter.layer;
  add_parameter(parameter);
  if (!layer.bias) return index;
  parameter.name = name + ".bias";
  parameter.shape = {layer.channels};
  parameter.bias = true;
  add_parameter(parameter);
  return index;
}

int Graph::linear(const std::string& name, int from, std::int64_t outputs, bool bias) {
  const Shape& in = shape(from);
  check(in.height == 1 && in.width == 1, ExitCode::usage, "layer {}: its input is {}; flatten it first", name,
        text_of(in));
  Parameter parameter;
  parameter.name = name + ".weight";
  parameter.shape = {outputs, in.channels};
  parameter.fan_in = in.channels;
  parameter.fan_out = outputs;
  parameter.layer = add_layer(name, LinearLayer{outputs, bias}, {from}, {outputs, 1, 1});
  const int index = parameter.layer;
  add_parameter(parameter);
  if (!bias) return index;
  parameter.name = name + ".bias";
  parameter.shape = {outputs};
  parameter.bias = true;
  add_parameter(parameter);
  return index;
}

int Graph::batch_norm(const std::string& name, int from, const BatchNormLayer& layer) {
  const std::int64_t channels = shape(from).channels;
  const int index = add_layer(name, layer, {from}, shape(from));
  for (const bool bias : {false, true}) {
    add_norm_parameter(index, bias, bias ? layer.fixed_bias : layer.fixed_weight);
    if (!bias && !layer.scale) parameters_.back().lr_scale = parameters_.back().decay_scale = 0;
    const char* statistic = bias ? ".running_var" : ".running_mean";
    statistics_.push_back({name + statistic, channels, statistic_count_, bias ? 1.0F : 0.0F, index});
    statistic_count_ += channels;
  }
  return index;
}

int Graph::sample_norm(const std::string& name, int from, const SampleNormLayer& layer) {
  const Shape& in = shape(from);
  check(layer.groups > 0 && in.channels % layer.groups == 0, ExitCode::usage,
        "layer {}: {} channels cannot be normalised in {} groups", name, in.channels, layer.groups);
  DDP_ASSERT(layer.over == NormOver::groups || layer.groups == 1);
  const int index = add_layer(name, layer, {from}, in);
  add_norm_parameter(index, /*bias=*/false, layer.fixed_weight);
  add_norm_parameter(index, /*bias=*/true, layer.fixed_bias);
  return index;
}

int Graph::linear_per_position(const std::string& name, int from, std::int64_t outputs, bool bias) {
  const int index = conv(name, from, {.channels = outputs, .bias = bias});
  parameter(name + ".weight").shape = {outputs, shape(from).channels};
  return index;
}

int Graph::activation(int from, Activation activation) {
  return add_layer(std::string(to_string(activation)), ActivationLayer{activation}, {from}, shape(from));
}

int Graph::prelu(const std::string& name, int from, bool shared) {
  Parameter parameter;
  parameter.name = name + ".weight";
  parameter.shape = {shared ? 1 : shape(from).channels};
  parameter.fan_in = parameter.fan_out = 1;
  // Like the scale of a normalisation, it is not initialised randomly.
  parameter.norm = true;
  parameter.initial = {Initial::Kind::constant, 0.25F};
  parameter.layer = add_layer(name, PreluLayer{shared}, {from}, shape(from));
  const int index = parameter.layer;
  add_parameter(std::move(parameter));
  return index;
}

int Graph::pool(int from, const PoolLayer& layer) {
  const Window2d& window = layer.window;
  const std::int64_t rows = std::max(window.padding.top, window.padding.bottom);
  const std::int64_t columns = std::max(window.padding.left, window.padding.right);
  check(rows < window.height && columns < window.width, ExitCode::usage,
        "pooling: padding of {}x{} for a window of {}x{}; windows would lie outside of the image", rows, columns,
        window.height, window.width);
  const Shape out = slide("pooling", shape(from), window);
  return add_layer("pool", layer, {from}, out);
}

int Graph::average_pool(int from, std::int64_t window) { return pool(from, {.window = square(window, window)}); }

int Graph::max_pool(int from, std::int64_t window) {
  return pool(from, {.kind = PoolSpec::Kind::maximum, .window = square(window, window)});
}

int Graph::global_average_pool(int from) {
  const Shape& in = shape(from);
  return pool(from, {.window = {.height = in.height, .width = in.width}});
}

int Graph::lrn(int from, const LrnLayer& layer) {
  check(layer.size > 0, ExitCode::usage, "local response normalisation over {} channels; use 1 or more", layer.size);
  return add_layer("lrn", layer, {from}, shape(from));
}

int Graph::dropout(int from, float rate, DropoutUnit unit) {
  check(rate >= 0 && rate < 1, ExitCode::usage, "dropout with rate {}; it must be at least 0 and less than 1", rate);
  const char* name = unit == DropoutUnit::sample ? "stochastic_depth" : "dropout";
  return add_layer(name, DropoutLayer{rate, unit}, {from}, shape(from));
}

int Graph::add(int a, int b) {
  check(shape(a) == shape(b), ExitCode::usage, "a sum of {} ({}) and {} ({}): their shapes differ",
        layers_[static_cast<std::size_t>(a)].name, text_of(shape(a)), layers_[static_cast<std::size_t>(b)].name,
        text_of(shape(b)));
  return add_layer("add", AddLayer{}, {a, b}, shape(a));
}

int Graph::pointwise(int from, PointwiseFunction function, float alpha) {
  check(std::isfinite(alpha), ExitCode::usage, "{} with an alpha of {}; it must be finite", to_string(function), alpha);
  return add_layer(std::string(to_string(function)), PointwiseLayer{function, alpha}, {from}, shape(from));
}

int Graph::product(int a, int b) {
  const Shape per_channel{shape(a).channels};
  check(shape(b) == shape(a) || shape(b) == per_channel, ExitCode::usage,
        "a product of {} ({}) and {} ({}): the second must have the first one's shape, or one value per channel",
        layers_[static_cast<std::size_t>(a)].name, text_of(shape(a)), layers_[static_cast<std::size_t>(b)].name,
        text_of(shape(b)));
  check(a != b, ExitCode::usage, "a product of {} with itself is not supported",
        layers_[static_cast<std::size_t>(a)].name);
  return add_layer("product", ProductLayer{}, {a, b}, shape(a));
}

int Graph::concat(int a, int b) {
  const Shape& first = shape(a);
  const Shape& second = shape(b);
  check(first.height == second.height && first.width == second.width, ExitCode::usage,
        "a concatenation of {} ({}) and {} ({}): their heights or widths differ",
        layers_[static_cast<std::size_t>(a)].name, text_of(first), layers_[static_cast<std::size_t>(b)].name,
        text_of(second));
  // DenseNet concatenates the same first parts again and again.
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const bool same = std::holds_alternative<ConcatLayer>(layers_[i].kind) && layers_[i].inputs == std::vector{a, b};
    if (same) return static_cast<int>(i);
  }
  return add_layer("concat", ConcatLayer{}, {a, b}, {first.channels + second.channels, first.height, first.width});
}

int Graph::concat(const std::vector<int>& parts) {
  check(!parts.empty(), ExitCode::usage, "a concatenation of nothing");
  int all = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) all = concat(all, parts[i]);
  return all;
}

int Graph::channel_select(int from, const ChannelSelectLayer& layer) {
  const Shape& in = shape(from);
  check(layer.first >= 0 && layer.count >= 1 && layer.count <= in.channels && layer.first <= in.channels - layer.count,
        ExitCode::usage, "channels {} to {} of {} ({}), which has {}", layer.first, layer.first + layer.count - 1,
        layers_[static_cast<std::size_t>(from)].name, text_of(in), in.channels);
  check(layer.groups >= 1 && layer.count % layer.groups == 0, ExitCode::usage,
        "{} channels cannot be shuffled in {} groups", layer.count, layer.groups);
  return add_layer(layer.groups > 1 ? "shuffle" : "slice", layer, {from}, {layer.count, in.height, in.width});
}

int Graph::channel_shuffle(int from, std::int64_t groups) {
  return channel_select(from, {.count = shape(from).channels, .groups = groups});
}

int Graph::flatten(int from, bool channels_last) {
  return add_layer("flatten", FlattenLayer{channels_last}, {from}, {shape(from).elements(), 1, 1});
}

int Graph::affine(const std::string& name, int from, const ChannelTensor& scale, const ChannelTensor* shift) {
  const std::int64_t channels = shape(from).channels;
  const int index = add_layer(name, AffineLayer{shift != nullptr}, {from}, shape(from));
  for (const bool bias : {false, true}) {
    if (bias && shift == nullptr) break;
    const ChannelTensor& tensor = bias ? *shift : scale;
    Parameter parameter;
    parameter.name = tensor.name;
    parameter.shape = tensor.shape;
    parameter.fan_in = parameter.fan_out = 1;
    parameter.bias = bias;
    parameter.layer = index;
    // Like the scale of a batch normalisation, it is not initialised randomly.
    parameter.norm = true;
    parameter.initial = {Initial::Kind::constant, bias ? 0.0F : 1.0F};
    parameter.fixed = tensor.fixed;
    if (tensor.fixed) parameter.lr_scale = parameter.decay_scale = 0;
    DDP_ASSERT(parameter.elements() == channels);
    add_parameter(parameter);
  }
  return index;
}

std::int64_t Graph::trained_count() const {
  std::int64_t count = 0;
  for (const Parameter& p : parameters_) count += p.fixed ? 0 : p.elements();
  return count;
}

Parameter& Graph::parameter(const std::string& name) {
  const auto found =
      std::find_if(parameters_.begin(), parameters_.end(), [&](const Parameter& p) { return p.name == name; });
  DDP_ASSERT(found != parameters_.end());
  return *found;
}

void Graph::set_initial_weights(const Initial& initial) {
  for (Parameter& p : parameters_) {
    if (!p.norm && !p.bias) p.initial = initial;
  }
}

void Graph::set_initial_biases(const Initial& initial) {
  for (Parameter& p : parameters_) {
    if (!p.norm && p.bias) p.initial = initial;
  }
}

}  // namespace ddp
