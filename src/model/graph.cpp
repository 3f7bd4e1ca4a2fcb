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
        window.rows(), window.columns(), text_of(in));
  return window.slide(in);
}

// Whether each window of one dimension has a tap in the image.
bool all_inside(std::int64_t results, std::int64_t taps, std::int64_t stride, std::int64_t dilation, std::int64_t pad,
                std::int64_t size) {
  for (std::int64_t i = 0; i < results; ++i) {
    const std::int64_t begin = i * stride - pad;
    const std::int64_t first = begin < 0 ? (dilation - 1 - begin) / dilation : 0;
    if (first >= taps || begin + first * dilation >= size) return false;
  }
  return true;
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

template <class ConvKind>
int Graph::add_conv(const std::string& name, int from, const ConvKind& layer, const Shape& out,
                    const std::array<std::int64_t, 2>& channels, std::int64_t fan_in, std::int64_t fan_out) {
  Parameter parameter;
  parameter.name = name + ".weight";
  parameter.shape = {channels[0], channels[1], layer.window.height, layer.window.width};
  parameter.fan_in = fan_in;
  parameter.fan_out = fan_out;
  const int index = add_layer(name, layer, {from}, out);
  parameter.layer = index;
  add_parameter(parameter);
  if (!layer.bias) return index;
  parameter.name = name + ".bias";
  parameter.shape = {layer.channels};
  parameter.bias = true;
  add_parameter(parameter);
  return index;
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
  // As in PyTorch, regardless of groups.
  return add_conv(name, from, layer, out, {layer.channels, group}, group * area, layer.channels * area);
}

int Graph::conv_transpose(const std::string& name, int from, const ConvTransposeLayer& layer) {
  const Shape& in = shape(from);
  check(layer.groups > 0 && in.channels % layer.groups == 0 && layer.channels % layer.groups == 0, ExitCode::usage,
        "layer {}: {} channels to {} cannot be divided into {} groups", name, in.channels, layer.channels,
        layer.groups);
  const Pair2d& stride = layer.window.stride;
  const Pair2d& extra = layer.output_padding;
  check(extra.vertical < stride.vertical && extra.horizontal < stride.horizontal, ExitCode::usage,
        "layer {}: an output padding of {},{} is not smaller than the stride of {},{}", name, extra.vertical,
        extra.horizontal, stride.vertical, stride.horizontal);
  const Shape out = ConvTransposeSpec{.input = in,
                                      .output_channels = layer.channels,
                                      .window = layer.window,
                                      .output_padding = extra,
                                      .groups = layer.groups}
                        .output();
  check(out.height > 0 && out.width > 0, ExitCode::usage, "layer {}: its output of {} is empty", name, text_of(out));
  const std::int64_t area = layer.window.elements();
  const std::int64_t group = layer.channels / layer.groups;
  // As in PyTorch, which takes them from the weight's shape.
  return add_conv(name, from, layer, out, {in.channels, group}, group * area, in.channels * area);
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
  parameter.layer = add_layer(name, LinearLayer{.outputs = outputs, .bias = bias}, {from}, {outputs, 1, 1});
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

void Graph::freeze_statistics(int layer) {
  std::get<BatchNormLayer>(layers_.at(static_cast<std::size_t>(layer)).kind).frozen = true;
}

void Graph::synchronize_batch_norm() {
  bool any = false;
  for (Layer& layer : layers_) {
    auto* norm = std::get_if<BatchNormLayer>(&layer.kind);
    if (norm == nullptr) continue;
    norm->synchronized = true;
    any = true;
  }
  check(any, ExitCode::usage, "the model has no batch normalisation that --sync-batch-norm could synchronize");
}

void Graph::split_linear(int layer, std::int64_t parts) {
  auto* linear = std::get_if<LinearLayer>(&layers_.at(static_cast<std::size_t>(layer)).kind);
  DDP_ASSERT(linear != nullptr && parts > 0 && linear->outputs % parts == 0);
  linear->parts = parts;
}

int Graph::classifier() const {
  const auto last = std::find_if(parameters_.rbegin(), parameters_.rend(), [](const Parameter& p) { return !p.norm; });
  return last == parameters_.rend() ? -1 : last->layer;
}

void Graph::set_classes(std::int64_t classes) {
  const int index = classifier();
  check(index >= 0, ExitCode::usage, "the model has no weights");
  const auto place = static_cast<std::size_t>(index);
  Layer& last = layers_[place];
  auto* linear = std::get_if<LinearLayer>(&last.kind);
  auto* conv = std::get_if<ConvLayer>(&last.kind);
  bool replaceable = (linear != nullptr || (conv != nullptr && conv->groups == 1)) && parameters_.back().layer == index;
  for (std::size_t i = place + 1; i < layers_.size(); ++i) {
    const LayerKind& kind = layers_[i].kind;
    const bool keeps = std::holds_alternative<PoolLayer>(kind) || std::holds_alternative<ActivationLayer>(kind) ||
                       std::holds_alternative<FlattenLayer>(kind) || std::holds_alternative<DropoutLayer>(kind);
    replaceable = replaceable && keeps && layers_[i].output.channels == last.output.channels;
  }
  check(replaceable, ExitCode::usage,
        "the logits do not come directly from layer '{}', the last one with weights, so it cannot be replaced for {} "
        "classes",
        last.name, classes);
  if (linear != nullptr) linear->outputs = classes;
  if (conv != nullptr) conv->channels = classes;
  for (std::size_t i = place; i < layers_.size(); ++i) layers_[i].output.channels = classes;
  std::vector<Parameter> own;
  while (!parameters_.empty() && parameters_.back().layer == index) {
    own.push_back(std::move(parameters_.back()));
    parameters_.pop_back();
    parameter_count_ -= own.back().elements();
    flat_elements_ = own.back().offset;
  }
  for (auto p = own.rbegin(); p != own.rend(); ++p) {
    const std::int64_t before = p->shape.front();
    p->shape.front() = classes;
    p->fan_out = p->fan_out / before * classes;
    add_parameter(std::move(*p));
  }
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
  const Shape& in = shape(from);
  const Shape out = slide("pooling", in, window);
  const bool inside = rows < window.rows() && columns < window.columns() &&
                      all_inside(out.height, window.height, window.stride.vertical, window.dilation.vertical,
                                 window.padding.top, in.height) &&
                      all_inside(out.width, window.width, window.stride.horizontal, window.dilation.horizontal,
                                 window.padding.left, in.width);
  check(inside, ExitCode::usage,
        "pooling: padding of {}x{} for a window of {}x{}; windows would lie outside of the image", rows, columns,
        window.rows(), window.columns());
  return add_layer("pool", layer, {from}, out);
}

int Graph::average_pool(int from, std::int64_t window) { return pool(from, {.window = square(window, window)}); }

int Graph::max_pool(int from, std::int64_t window) {
  return pool(from, {.kind = PoolSpec::Kind::maximum, .window = square(window, window)});
}

int Graph::adaptive_average_pool(int from, std::int64_t height, std::int64_t width) {
  const Shape in = shape(from);
  check(height > 0 && width > 0, ExitCode::usage, "adaptive pooling to {}x{}", height, width);
  if (in.height % height == 0 && in.width % width == 0) {
    const Pair2d step(in.height / height, in.width / width);
    return pool(from, {.window = {.height = step.vertical, .width = step.horizontal, .stride = step}});
  }
  return add_layer("pool", PoolLayer{.window = {}, .adaptive_height = height, .adaptive_width = width}, {from},
                   {in.channels, height, width});
}

int Graph::pad(int from, const PadLayer& layer) {
  const Shape& in = shape(from);
  const Padding2d& p = layer.padding;
  const std::int64_t rows = layer.mode == PadMode::reflect ? in.height - 1 : p.top + p.bottom;
  const std::int64_t columns = layer.mode == PadMode::reflect ? in.width - 1 : p.left + p.right;
  check(std::max(p.top, p.bottom) <= rows && std::max(p.left, p.right) <= columns, ExitCode::usage,
        "reflected padding of {},{},{},{} of an image {}; it must be smaller than the image", p.top, p.left, p.bottom,
        p.right, text_of(in));
  const Shape out = PadSpec{.input = in, .padding = p, .mode = layer.mode}.output();
  return add_layer("pad", layer, {from}, out);
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
  return add_layer(std::string(to_string(function)), PointwiseSpec{.function = function, .alpha = alpha}, {from},
                   shape(from));
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
