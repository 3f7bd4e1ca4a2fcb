#include "model/stages.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/overloaded.h"

namespace ddp {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// The part of an input of shape `whole` that a layer needs to compute the part `out` of its output.
Shape read_by_layer(const LayerKind& kind, const Shape& out, const Shape& whole) {
  return std::visit(
      Overloaded{
          [&](const OneOf<ConvLayer, PoolLayer> auto& layer) { return layer.window.reads(out, whole); },

          [&](const OneOf<ActivationLayer, PreluLayer, AddLayer, LrnLayer, AffineLayer> auto& /*layer*/) {
            return out;
          },
          [&](const LayerSpec auto& /*layer*/) { return out; },
          [&](const ChannelSelectLayer& /*layer*/) {
            return Shape{whole.channels, out.height, out.width};
          },
          [&](const OneOf<InputLayer, ConvTransposeLayer, PadLayer, LinearLayer, BatchNormLayer, SampleNormLayer,
                          DropoutLayer, ProductLayer, ConcatLayer, FlattenLayer> auto& /*layer*/) { return whole; }},
      kind);
}

// Whether a layer computes each position from the whole image, so that no part of its input may be missing.
bool needs_whole_input(const LayerKind& kind) {
  if (const auto* pool = std::get_if<PoolLayer>(&kind)) return pool->adaptive_height > 0;
  return std::holds_alternative<BatchNormLayer>(kind) || std::holds_alternative<SampleNormLayer>(kind) ||
         std::holds_alternative<ConvTransposeLayer>(kind) || std::holds_alternative<PadLayer>(kind);
}

// Whether every layer may compute only what the next one reads: a chain without statistics or random numbers over the
// whole output.
bool can_crop(const Graph& graph) {
  std::vector<int> readers(graph.layers().size());
  for (const Layer& layer : graph.layers()) {
    const bool spatial = layer.output.height * layer.output.width > 1;
    if (needs_whole_input(layer.kind)) return false;
    if (std::holds_alternative<DropoutLayer>(layer.kind) && spatial) return false;
    for (const int input : layer.inputs) {
      if (++readers[at(input)] > 1) return false;
    }
  }
  return true;
}

// For each layer, the part of its output that later layers read.
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

ConvSpec conv_spec(const ConvLayer& layer, std::int64_t batch, const Shape& in, const Shape& out) {
  const ConvSpec spec{.batch = batch,
                      .input = in,
                      .output_channels = layer.channels,
                      .window = layer.window.cropped(out, in),
                      .groups = layer.groups,
                      .bias = layer.bias};
  DDP_ASSERT((spec.convolved() == Shape{layer.channels, out.height, out.width}));
  return spec;
}

PoolSpec pool_spec(const PoolLayer& layer, std::int64_t batch, const Shape& in, const Shape& out) {
  const PoolSpec spec{.batch = batch,
                      .input = in,
                      .kind = layer.kind,
                      .window = layer.window.cropped(out, in),
                      .count_padding = layer.count_padding,
                      .adaptive_height = layer.adaptive_height > 0 ? out.height : 0,
                      .adaptive_width = layer.adaptive_height > 0 ? out.width : 0};
  DDP_ASSERT((spec.output() == Shape{in.channels, out.height, out.width}));
  return spec;
}

ConvTransposeSpec conv_transpose_spec(const ConvTransposeLayer& layer, std::int64_t batch, const Shape& in) {
  return {.batch = batch,
          .input = in,
          .output_channels = layer.channels,
          .window = layer.window,
          .output_padding = layer.output_padding,
          .groups = layer.groups,
          .bias = layer.bias};
}

LinearSpec linear_spec(const LinearLayer& layer, std::int64_t batch, const Shape& in) {
  return {.batch = batch, .inputs = in.elements(), .outputs = layer.outputs, .bias = layer.bias, .parts = layer.parts};
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
    stop_backward();
    return std::move(stages_);
  }

 private:
  // Whether layer `i` can be fused into the last stage: it is the only reader of that stage's output.
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
    return std::visit(
        Overloaded{
            [&](OneOf<ConvSpec, LinearSpec> auto& spec) {
              const bool fuses = relu && !spec.relu;
              spec.relu = spec.relu || fuses;
              return fuses;
            },
            [&](OneOf<BatchNormSpec, AddSpec> auto& spec) {
              const bool fuses = clipped && spec.activation == Activation::none;
              if (fuses) spec.activation = activation;
              return fuses;
            },
            [](OneOf<ConvTransposeSpec, ActivationSpec, PoolSpec, ReorderSpec, ChannelsLastSpec> auto& /*spec*/) {
              return false;
            },
            [](const SimpleSpec auto& /*spec*/) { return false; }},
        stages_.back().spec);
  }

  bool fuse_pooling(const PoolLayer& pool) {
    auto* conv = std::get_if<ConvSpec>(&stages_.back().spec);
    const Window2d& window = pool.window;
    const bool halves = pool.kind == PoolSpec::Kind::average && window.height == 2 && window.width == 2 &&
                        window.stride == 2 && window.dilation == 1 && pool.adaptive_height == 0 &&
                        window.padding.top == 0 && window.padding.left == 0;
    if (!halves || conv == nullptr || !conv->relu || conv->average_pool) return false;
    const Shape out = conv->convolved();
    if (out.height % 2 != 0 || out.width % 2 != 0) return false;
    return conv->average_pool = true;
  }

  // A sum of the last stage, a batch normalisation, and an earlier value.
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
    if (layer.inputs.empty()) throw Error(ExitCode::internal, "the images are not computed by a stage");
    const Shape in = demanded_[at(layer.inputs.front())];
    const Shape out = demanded_[i];
    return std::visit(
        Overloaded{[&](const ConvLayer& l) -> OpSpec { return conv_spec(l, batch_, in, out); },
                   [&](const AffineLayer& l) -> OpSpec {
                     // A depthwise convolution with a 1x1 window.
                     return conv_spec({.channels = in.channels, .groups = in.channels, .bias = l.shift}, batch_, in,
                                      out);
                   },
                   [&](const OneOf<InputLayer, FlattenLayer> auto& /*l*/) -> OpSpec {
                     return ChannelsLastSpec{batch_, in};
                   },
                   [&](const ConvTransposeLayer& l) -> OpSpec { return conv_transpose_spec(l, batch_, in); },
                   [&](const PadLayer& l) -> OpSpec {
                     return PadSpec{batch_, in, l.padding, l.mode};
                   },
                   [&](const PoolLayer& l) -> OpSpec { return pool_spec(l, batch_, in, out); },
                   [&](const LinearLayer& l) -> OpSpec { return linear_spec(l, batch_, in); },
                   [&](const BatchNormLayer& l) -> OpSpec {
                     return BatchNormSpec{.batch = batch_,
                                          .shape = in,
                                          .epsilon = l.epsilon,
                                          .momentum = l.momentum,
                                          .synchronized = l.synchronized && !l.frozen,
                                          .frozen = l.frozen};
                   },
                   [&](const PreluLayer& l) -> OpSpec {
                     return PreluSpec{batch_, in, l.shared};
                   },
                   [&](const SampleNormLayer& l) -> OpSpec {
                     return SampleNormSpec{batch_, in, l.over, l.groups, l.epsilon};
                   },
                   [&](const LrnLayer& l) -> OpSpec { return LrnSpec{batch_, in, l.size, l.alpha, l.beta, l.k}; },
                   [&](const DropoutLayer& l) -> OpSpec {
                     return DropoutSpec{batch_, in, l.rate, static_cast<std::uint32_t>(i), l.unit};
                   },
                   [&](const AddLayer& /*l*/) -> OpSpec { return AddSpec{.batch = batch_, .shape = in}; },
                   [&](const LayerSpec auto& l) -> OpSpec {
                     auto spec = l;
                     spec.batch = batch_;
                     spec.shape = in;
                     return spec;
                   },
                   [&](const ProductLayer& /*l*/) -> OpSpec {
                     return ProductSpec{batch_, in, demanded_[at(layer.inputs[1])] != in};
                   },
                   [&](const ConcatLayer& /*l*/) -> OpSpec {
                     return ConcatSpec{batch_, in, demanded_[at(layer.inputs[1])].channels};
                   },
                   [&](const ChannelSelectLayer& l) -> OpSpec {
                     return ChannelSelectSpec{batch_, in, l.first, l.count, l.groups};
                   },
                   [&](const ActivationLayer& l) -> OpSpec {
                     return ActivationSpec{batch_, in, l.activation};
                   }},
        layer.kind);
  }

  void add(std::size_t i) {
    const Layer& layer = graph_.layers()[i];
    Stage stage;
    stage.name = unique(layer.name);
    stage.spec = spec_of(i);
    for (const int input : layer.inputs) {
      stage.inputs.push_back(values_[at(input)]);
    }
    if (auto* linear = std::get_if<LinearSpec>(&stage.spec); linear != nullptr && stage.inputs.front().flattens) {
      const int before = stage.inputs.front().stage;
      linear->image = before < 0 ? demanded_.front() : output_of(stages_[at(before)].spec);
      DDP_ASSERT(linear->image.elements() == linear->inputs);
    }
    for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
      DDP_ASSERT(demanded_[at(layer.inputs[k])] == input_of(stage.spec, k) || stage.inputs[k].flattens);
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
    // Only a mean of the batch cancels the bias.
    if (norm == nullptr || norm->frozen) return;
    norm->input_bias = std::visit(
        [](auto& spec) {
          if constexpr (requires { spec.bias; }) {
            bool relu = false;
            if constexpr (requires { spec.relu; }) relu = spec.relu;
            if (!relu) return std::exchange(spec.bias, false);
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

  // Backward ends where no earlier stage has a parameter that is trained; the last stage always has a gradient.
  void stop_backward() {
    const std::vector<Parameter>& parameters = graph_.parameters();
    const bool freezes = std::any_of(parameters.begin(), parameters.end(), [](const auto& p) { return p.frozen; });
    const auto trained = [&](int p) { return !parameters[at(p)].frozen && !(freezes && parameters[at(p)].fixed); };
    for (Stage& stage : stages_) {
      const auto behind_trained = [this](const StageInput& input) {
        return input.stage >= 0 && stages_[at(input.stage)].backward;
      };
      const bool passes = std::any_of(stage.inputs.begin(), stage.inputs.end(), behind_trained);
      if (!passes) set_no_input_gradient(stage.spec);
      stage.backward = !freezes || passes || &stage == &stages_.back() ||
                       std::any_of(stage.parameters.begin(), stage.parameters.end(), trained);
    }
  }

  static void set_no_input_gradient(OpSpec& spec) {
    std::visit(
        [](auto& s) {
          if constexpr (requires { s.input_gradient; }) s.input_gradient = false;
        },
        spec);
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
