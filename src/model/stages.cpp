#include "model/stages.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"

namespace ddp {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// Rows (or columns) of the input that `outputs` rows of the output read, out of `size`.
std::int64_t read_by(std::int64_t kernel, std::int64_t stride, std::int64_t padding, std::int64_t outputs,
                     std::int64_t size) {
  return std::min(size, (outputs - 1) * stride + kernel - padding);
}

// The part of an input of shape `whole` that a layer reads for the part `out` of its output.
Shape read_by_layer(const LayerKind& kind, const Shape& out, const Shape& whole) {
  if (const auto* conv = std::get_if<ConvLayer>(&kind)) {
    return {whole.channels, read_by(conv->kernel, conv->stride, conv->top(), out.height, whole.height),
            read_by(conv->width(), conv->stride, conv->left(), out.width, whole.width)};
  }
  if (const auto* pool = std::get_if<PoolLayer>(&kind)) {
    return {whole.channels, read_by(pool->window, pool->stride, pool->padding_top, out.height, whole.height),
            read_by(pool->width(), pool->stride, pool->padding_left, out.width, whole.width)};
  }
  const bool element_by_element = std::holds_alternative<ActivationLayer>(kind) ||
                                  std::holds_alternative<AddLayer>(kind) || std::holds_alternative<LrnLayer>(kind) ||
                                  std::holds_alternative<AffineLayer>(kind);
  if (element_by_element) return out;
  return whole;
}

// Whether every layer may compute just what the next one reads: a chain, without statistics or random numbers that are
// of the whole.
bool can_crop(const Graph& graph) {
  std::vector<int> readers(graph.layers().size());
  for (const Layer& layer : graph.layers()) {
    const bool spatial = layer.output.height * layer.output.width > 1;
    if (std::holds_alternative<BatchNormLayer>(layer.kind)) return false;
    if (std::holds_alternative<DropoutLayer>(layer.kind) && spatial) return false;
    for (const int input : layer.inputs) {
      if (++readers[at(input)] > 1) return false;
    }
  }
  return true;
}

// For each layer, the part of its output that a later layer reads.
std::vector<Shape> demanded_outputs(const Graph& graph) {
  const std::vector<Layer>& layers = graph.layers();
  std::vector<Shape> demanded;
  for (const Layer& layer : layers) demanded.push_back(layer.output);
  if (!can_crop(graph)) return demanded;
  for (std::size_t i = layers.size(); i-- > 1;) {
    Shape& input = demanded[at(layers[i].inputs.front())];
    input = read_by_layer(layers[i].kind, demanded[i], input);
  }
  return demanded;
}

// Padding after the end of a cropped input of `size` that `outputs` cropped outputs read.
std::int64_t far_pad(std::int64_t kernel, std::int64_t stride, std::int64_t padding, std::int64_t outputs,
                     std::int64_t size) {
  return std::max<std::int64_t>(0, (outputs - 1) * stride + kernel - padding - size);
}

ConvSpec conv_spec(const ConvLayer& layer, std::int64_t batch, const Shape& in, const Shape& out) {
  ConvSpec s;
  s.batch = batch;
  s.input = in;
  s.output_channels = layer.channels;
  s.kernel_h = layer.kernel;
  s.kernel_w = layer.width();
  s.stride = layer.stride;
  s.groups = layer.groups;
  s.bias = layer.bias;
  s.pad_top = layer.top();
  s.pad_left = layer.left();
  s.pad_bottom = far_pad(s.kernel_h, s.stride, s.pad_top, out.height, in.height);
  s.pad_right = far_pad(s.kernel_w, s.stride, s.pad_left, out.width, in.width);
  DDP_ASSERT((s.convolved() == Shape{layer.channels, out.height, out.width}));
  return s;
}

PoolSpec pool_spec(const PoolLayer& layer, std::int64_t batch, const Shape& in, const Shape& out) {
  PoolSpec s;
  s.batch = batch;
  s.input = in;
  s.kind = layer.kind;
  s.window_h = layer.window;
  s.window_w = layer.width();
  s.stride = layer.stride;
  s.pad_top = layer.padding_top;
  s.pad_left = layer.padding_left;
  s.pad_bottom = far_pad(s.window_h, s.stride, s.pad_top, out.height, in.height);
  s.pad_right = far_pad(s.window_w, s.stride, s.pad_left, out.width, in.width);
  s.count_padding = layer.count_padding;
  DDP_ASSERT((s.output() == Shape{in.channels, out.height, out.width}));
  return s;
}

// Builds the stages layer by layer, fusing a layer into the stage before it where it can.
class Lowering {
 public:
  Lowering(const Graph& graph, std::int64_t batch, bool bias_into_norm)
      : graph_(graph),
        batch_(batch),
        bias_into_norm_(bias_into_norm),
        demanded_(demanded_outputs(graph)),
        values_(graph.layers().size()),
        readers_(graph.layers().size()) {
    for (const Layer& layer : graph.layers()) {
      for (const int input : layer.inputs) ++readers_[at(input)];
    }
  }

  std::vector<Stage> run() {
    const std::vector<Layer>& layers = graph_.layers();
    for (std::size_t i = 1; i < layers.size(); ++i) {
      const auto* flatten = std::get_if<FlattenLayer>(&layers[i].kind);
      if (flatten != nullptr && !flatten->channels_last) {
        values_[i] = {values_[at(layers[i].inputs.front())].stage, true};
      } else if (!fuse(i)) {
        add(i);
      }
    }
    DDP_ASSERT(!stages_.empty());
    DDP_ASSERT(values_.back().stage + 1 == static_cast<int>(stages_.size()));
    for (Stage& stage : stages_) {
      if (stage.inputs.front().stage < 0) set_no_input_gradient(stage.spec);
    }
    return std::move(stages_);
  }

 private:
  // Whether layer `i` may become a part of the last stage: that stage's output is what it reads, and nobody else does.
  bool follows_alone(int input) const {
    const StageInput& value = values_[at(input)];
    return !stages_.empty() && value.stage + 1 == static_cast<int>(stages_.size()) && !value.flattens &&
           readers_[at(input)] == 1;
  }

  bool fuse(std::size_t i) {
    const Layer& layer = graph_.layers()[i];
    bool fused = false;
    if (std::holds_alternative<AddLayer>(layer.kind)) {
      fused = fuse_sum(layer.inputs[0], layer.inputs[1]) || fuse_sum(layer.inputs[1], layer.inputs[0]);
    } else if (follows_alone(layer.inputs.front())) {
      const auto* activation = std::get_if<ActivationLayer>(&layer.kind);
      const auto* pool = std::get_if<PoolLayer>(&layer.kind);
      if (activation != nullptr) fused = fuse_activation(activation->activation);
      if (pool != nullptr) fused = fuse_pooling(*pool);
    }
    if (fused) values_[i] = {static_cast<int>(stages_.size()) - 1, false};
    return fused;
  }

  bool fuse_activation(Activation activation) {
    const bool relu = activation == Activation::relu;
    const bool clipped = relu || activation == Activation::relu6;
    OpSpec& spec = stages_.back().spec;
    auto* norm = std::get_if<BatchNormSpec>(&spec);
    auto* sum = std::get_if<AddSpec>(&spec);
    if (auto* conv = std::get_if<ConvSpec>(&spec); conv != nullptr && relu && !conv->relu) return conv->relu = true;
    if (auto* linear = std::get_if<LinearSpec>(&spec); linear != nullptr && relu && !linear->relu) {
      return linear->relu = true;
    }
    if (norm != nullptr && clipped && norm->activation == Activation::none) {
      norm->activation = activation;
      return true;
    }
    if (sum != nullptr && clipped && sum->activation == Activation::none) {
      sum->activation = activation;
      return true;
    }
    return false;
  }

  bool fuse_pooling(const PoolLayer& pool) {
    auto* conv = std::get_if<ConvSpec>(&stages_.back().spec);
    const bool halves = pool.kind == PoolSpec::Kind::average && pool.window == 2 && pool.width() == 2 &&
                        pool.stride == 2 && pool.padding_top == 0 && pool.padding_left == 0;
    if (!halves || conv == nullptr || !conv->relu || conv->average_pool) return false;
    const Shape out = conv->convolved();
    if (out.height % 2 != 0 || out.width % 2 != 0) return false;
    return conv->average_pool = true;
  }

  // A sum of the last stage, a batch normalisation, and something from before it.
  bool fuse_sum(int norm_layer, int other_layer) {
    if (!follows_alone(norm_layer)) return false;
    auto* norm = std::get_if<BatchNormSpec>(&stages_.back().spec);
    const StageInput& other = values_[at(other_layer)];
    if (norm == nullptr || norm->add || norm->activation != Activation::none) return false;
    if (other.stage < 0 || other.stage + 1 == static_cast<int>(stages_.size())) return false;
    if (demanded_[at(other_layer)] != demanded_[at(norm_layer)]) return false;
    norm->add = true;
    stages_.back().inputs.push_back(other);
    return true;
  }

  OpSpec spec_of(std::size_t i) const {
    const Layer& layer = graph_.layers()[i];
    const Shape in = demanded_[at(layer.inputs.front())];
    const Shape out = demanded_[i];
    if (const auto* conv = std::get_if<ConvLayer>(&layer.kind)) return conv_spec(*conv, batch_, in, out);
    if (const auto* affine = std::get_if<AffineLayer>(&layer.kind)) {
      // A convolution of each channel by itself, over one pixel.
      return conv_spec({.channels = in.channels, .groups = in.channels, .bias = affine->shift}, batch_, in, out);
    }
    if (std::holds_alternative<FlattenLayer>(layer.kind)) return ChannelsLastSpec{batch_, in};
    if (const auto* pool = std::get_if<PoolLayer>(&layer.kind)) return pool_spec(*pool, batch_, in, out);
    if (const auto* linear = std::get_if<LinearLayer>(&layer.kind)) {
      return LinearSpec{.batch = batch_, .inputs = in.elements(), .outputs = linear->outputs, .bias = linear->bias};
    }
    if (const auto* norm = std::get_if<BatchNormLayer>(&layer.kind)) {
      return BatchNormSpec{.batch = batch_, .shape = in, .epsilon = norm->epsilon, .momentum = norm->momentum};
    }
    if (const auto* lrn = std::get_if<LrnLayer>(&layer.kind)) {
      return LrnSpec{batch_, in, lrn->size, lrn->alpha, lrn->beta, lrn->k};
    }
    if (const auto* dropout = std::get_if<DropoutLayer>(&layer.kind)) {
      return DropoutSpec{batch_, in, dropout->rate, static_cast<std::uint32_t>(i)};
    }
    if (std::holds_alternative<AddLayer>(layer.kind)) return AddSpec{.batch = batch_, .shape = in};
    return ActivationSpec{batch_, in, std::get<ActivationLayer>(layer.kind).activation};
  }

  void add(std::size_t i) {
    const Layer& layer = graph_.layers()[i];
    Stage stage;
    stage.name = unique(layer.name);
    stage.spec = spec_of(i);
    for (const int input : layer.inputs) {
      DDP_ASSERT(demanded_[at(input)] == demanded_[at(layer.inputs.front())]);
      stage.inputs.push_back(values_[at(input)]);
    }
    for (std::size_t p = 0; p < graph_.parameters().size(); ++p) {
      if (at(graph_.parameters()[p].layer) == i) stage.parameters.push_back(static_cast<int>(p));
    }
    const auto first = std::find_if(graph_.statistics().begin(), graph_.statistics().end(),
                                    [&](const Statistic& s) { return at(s.layer) == i; });
    if (first != graph_.statistics().end()) stage.statistics = first->offset;
    if (bias_into_norm_ && follows_alone(layer.inputs.front())) take_bias(stages_.back(), stage);
    values_[i] = {static_cast<int>(stages_.size()), false};
    stages_.push_back(std::move(stage));
  }

  // If `stage` is a batch normalisation, it takes over the bias of the stage before it.
  static void take_bias(Stage& before, Stage& stage) {
    auto* norm = std::get_if<BatchNormSpec>(&stage.spec);
    if (norm == nullptr) return;
    norm->input_bias = std::visit(
        [](auto& spec) {
          if constexpr (requires { spec.bias; }) {
            if (!spec.relu) return std::exchange(spec.bias, false);
          }
          return false;
        },
        before.spec);
    if (!norm->input_bias) return;
    DDP_ASSERT(before.parameters.size() == 2);
    stage.parameters.push_back(before.parameters.back());
    before.parameters.pop_back();
  }

  std::string unique(const std::string& name) {
    std::string free = name;
    for (int n = 2; !names_.insert(free).second; ++n) free = fmt::format("{}_{}", name, n);
    return free;
  }

  static void set_no_input_gradient(OpSpec& spec) {
    if (auto* conv = std::get_if<ConvSpec>(&spec)) conv->input_gradient = false;
    if (auto* linear = std::get_if<LinearSpec>(&spec)) linear->input_gradient = false;
  }

  const Graph& graph_;
  std::int64_t batch_;
  bool bias_into_norm_;
  std::vector<Shape> demanded_;
  std::vector<StageInput> values_;  // of each layer's output
  std::vector<int> readers_;        // of each layer's output
  std::set<std::string> names_;
  std::vector<Stage> stages_;
};

}  // namespace

std::vector<Stage> make_stages(const Graph& graph, std::int64_t batch, bool bias_into_norm) {
  return Lowering(graph, batch, bias_into_norm).run();
}

Shape cropped_input(const Graph& graph) { return demanded_outputs(graph).front(); }

}  // namespace ddp
