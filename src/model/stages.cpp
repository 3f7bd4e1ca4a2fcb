#include "model/stages.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace ddp {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

struct Window {
  std::int64_t kernel, stride, padding;
};

// Rows (or columns) of the input that `outputs` rows of the output read, out of `size`.
std::int64_t read_by(const Window& w, std::int64_t outputs, std::int64_t size) {
  return std::min(size, (outputs - 1) * w.stride + w.kernel - w.padding);
}

// For each layer, the part of its output that a later layer reads.
std::vector<Shape> demanded_outputs(const Graph& graph) {
  const std::vector<Layer>& layers = graph.layers();
  std::vector<Shape> demanded(layers.size());
  demanded.back() = layers.back().output;
  for (std::size_t i = layers.size(); i-- > 1;) {
    const Layer& layer = layers[i];
    const Shape& whole = layers[at(layer.input)].output;
    Shape need = whole;
    const auto crop = [&](const Window& w) {
      need.height = read_by(w, demanded[i].height, whole.height);
      need.width = read_by(w, demanded[i].width, whole.width);
    };
    if (const auto* conv = std::get_if<ConvLayer>(&layer.kind)) crop({conv->kernel, conv->stride, conv->padding});
    if (const auto* pool = std::get_if<PoolLayer>(&layer.kind)) crop({pool->window, pool->stride, 0});
    if (std::holds_alternative<ReluLayer>(layer.kind)) need = demanded[i];
    Shape& target = demanded[at(layer.input)];
    target = {whole.channels, std::max(target.height, need.height), std::max(target.width, need.width)};
  }
  return demanded;
}

ConvSpec conv_spec(const ConvLayer& layer, std::int64_t batch, const Shape& in, const Shape& out) {
  ConvSpec s;
  s.batch = batch;
  s.input = in;
  s.output_channels = layer.channels;
  s.kernel_h = s.kernel_w = layer.kernel;
  s.stride = layer.stride;
  s.pad_top = s.pad_left = layer.padding;
  // What the cropped output reads below and to the right of the cropped input.
  const auto far_pad = [&](std::int64_t outputs, std::int64_t size) {
    return std::max<std::int64_t>(0, (outputs - 1) * layer.stride + layer.kernel - layer.padding - size);
  };
  s.pad_bottom = far_pad(out.height, in.height);
  s.pad_right = far_pad(out.width, in.width);
  DDP_ASSERT((s.convolved() == Shape{layer.channels, out.height, out.width}));
  return s;
}

// Builds the stages layer by layer, fusing a layer into the stage before it where it can.
class Lowering {
 public:
  Lowering(const Graph& graph, std::int64_t batch) : graph_(graph), batch_(batch), demanded_(demanded_outputs(graph)) {}

  std::vector<Stage> run() {
    const std::vector<Layer>& layers = graph_.layers();
    for (std::size_t i = 1; i < layers.size(); ++i) {
      DDP_ASSERT(at(layers[i].input) + 1 == i);  // a chain
      if (!fuse(i)) add(i);
    }
    if (!stages_.empty()) set_no_input_gradient(stages_.front().spec);
    return std::move(stages_);
  }

 private:
  bool fuse(std::size_t i) {
    if (stages_.empty()) return false;
    const Layer& layer = graph_.layers()[i];
    auto* conv = std::get_if<ConvSpec>(&stages_.back().spec);
    auto* linear = std::get_if<LinearSpec>(&stages_.back().spec);
    if (std::holds_alternative<ReluLayer>(layer.kind)) {
      if (conv != nullptr && !conv->relu) return conv->relu = true;
      if (linear != nullptr && !linear->relu) return linear->relu = true;
      return false;
    }
    const auto* pool = std::get_if<PoolLayer>(&layer.kind);
    const bool halves =
        pool != nullptr && pool->kind == PoolLayer::Kind::average && pool->window == 2 && pool->stride == 2;
    if (!halves || conv == nullptr || !conv->relu || conv->average_pool) return false;
    const Shape out = conv->convolved();
    if (out.height % 2 != 0 || out.width % 2 != 0) return false;
    return conv->average_pool = true;
  }

  void add(std::size_t i) {
    const Layer& layer = graph_.layers()[i];
    const Shape in = demanded_[at(layer.input)];
    Stage stage{layer.name, ReluSpec{batch_, in}, {}, std::exchange(flattened_, false)};
    for (std::size_t p = 0; p < graph_.parameters().size(); ++p) {
      if (at(graph_.parameters()[p].layer) == i) stage.parameters.push_back(static_cast<int>(p));
    }
    if (std::holds_alternative<FlattenLayer>(layer.kind)) {
      flattened_ = true;
      return;
    }
    if (const auto* conv = std::get_if<ConvLayer>(&layer.kind)) {
      stage.spec = conv_spec(*conv, batch_, in, demanded_[i]);
    } else if (const auto* linear = std::get_if<LinearLayer>(&layer.kind)) {
      stage.spec = LinearSpec{.batch = batch_, .inputs = in.elements(), .outputs = linear->outputs};
    } else if (const auto* pool = std::get_if<PoolLayer>(&layer.kind)) {
      const auto kind = pool->kind == PoolLayer::Kind::average ? PoolSpec::Kind::average : PoolSpec::Kind::maximum;
      stage.spec = PoolSpec{batch_, in, kind, pool->window, pool->stride};
    }
    stages_.push_back(std::move(stage));
  }

  static void set_no_input_gradient(OpSpec& spec) {
    if (auto* conv = std::get_if<ConvSpec>(&spec)) conv->input_gradient = false;
    if (auto* linear = std::get_if<LinearSpec>(&spec)) linear->input_gradient = false;
  }

  const Graph& graph_;
  std::int64_t batch_;
  std::vector<Shape> demanded_;
  std::vector<Stage> stages_;
  bool flattened_ = false;
};

}  // namespace

std::vector<Stage> make_stages(const Graph& graph, std::int64_t batch) { return Lowering(graph, batch).run(); }

Shape cropped_input(const Graph& graph) { return demanded_outputs(graph).front(); }

}  // namespace ddp
