#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/overloaded.h"
#include "model/graph.h"

namespace ddp {
namespace {

std::string sides_of(const Shape& s) { return fmt::format("{}x{}", s.height, s.width); }

bool covers(const Window2d& window, const Shape& image) {
  return window.rows() == image.height && window.columns() == image.width && window.padding == Padding2d{};
}

// Adds the layers of `from` to a graph with other images.
class Rebuild {
 public:
  Rebuild(const Graph& from, Graph& to) : from_(from), to_(to) {}

  void add(const Layer& layer) {
    layer_ = &layer;
    std::visit(*this, layer.kind);
  }

  void operator()(const InputLayer& /*l*/) {}
  void operator()(const ConvLayer& l) { to_.conv(layer_->name, input(), l); }
  void operator()(const ConvTransposeLayer& l) { to_.conv_transpose(layer_->name, input(), l); }
  void operator()(const LinearLayer& l) {
    const Shape& now = to_.shape(input());
    const Shape& then = from_.shape(input());
    check(now == then, ExitCode::usage,
          "layer '{}' has {} inputs with images of {}, but {} with images of {}, so its weights do not fit both; only "
          "networks with a pooling over the whole image in front of their linear layers work with several sizes",
          layer_->name, then.elements(), sides_of(from_.shape(0)), now.elements(), sides_of(to_.shape(0)));
    to_.linear(layer_->name, input(), l.outputs, l.bias);
  }
  void operator()(const BatchNormLayer& l) { to_.batch_norm(layer_->name, input(), l); }
  void operator()(const SampleNormLayer& l) { to_.sample_norm(layer_->name, input(), l); }
  void operator()(const ActivationLayer& l) { to_.activation(input(), l.activation); }
  void operator()(const LayerSpec auto& l) { to_.apply(input(), l); }
  void operator()(const PreluLayer& l) { to_.prelu(layer_->name, input(), l.shared); }
  void operator()(const PoolLayer& l) {
    if (l.adaptive_height > 0) {
      to_.adaptive_average_pool(input(), l.adaptive_height, l.adaptive_width);
      return;
    }
    PoolLayer pool = l;
    const Shape& now = to_.shape(input());
    if (covers(l.window, from_.shape(input()))) pool.window = {.height = now.height, .width = now.width};
    to_.pool(input(), pool);
  }
  void operator()(const PadLayer& l) { to_.pad(input(), l); }
  void operator()(const LrnLayer& l) { to_.lrn(input(), l); }
  void operator()(const DropoutLayer& l) { to_.dropout(input(), l.rate, l.unit); }
  void operator()(const AddLayer& /*l*/) { to_.add(input(), second_input()); }
  void operator()(const ProductLayer& /*l*/) { to_.product(input(), second_input()); }
  void operator()(const ConcatLayer& /*l*/) { to_.concat(input(), second_input()); }
  void operator()(const ChannelSelectLayer& l) { to_.channel_select(input(), l); }
  void operator()(const FlattenLayer& l) { to_.flatten(input(), l.channels_last); }
  void operator()(const AffineLayer& l) {
    std::vector<ChannelTensor> tensors;
    const auto index = static_cast<int>(layer_ - from_.layers().data());
    for (const Parameter& p : from_.parameters()) {
      if (p.layer == index) tensors.push_back({p.name, p.shape, p.fixed});
    }
    to_.affine(layer_->name, input(), tensors[0], l.shift ? &tensors[1] : nullptr);
  }

 private:
  int input() const { return layer_->inputs[0]; }
  int second_input() const { return layer_->inputs[1]; }

  const Graph& from_;
  Graph& to_;
  const Layer* layer_ = nullptr;
};

}  // namespace

Graph Graph::at_size(std::int64_t height, std::int64_t width) const {
  const Shape& image = shape(input());
  Graph result({image.channels, height, width});
  Rebuild rebuild(*this, result);
  for (const Layer& layer : layers_) rebuild.add(layer);
  DDP_ASSERT(result.layers_.size() == layers_.size());
  check(result.layers_.back().output == layers_.back().output, ExitCode::usage,
        "the network's result is {} with images of {}, but {} with images of {}; only networks with a pooling over "
        "the whole image in front of their logits work with several sizes",
        sides_of(layers_.back().output), sides_of(image), sides_of(result.layers_.back().output),
        sides_of(result.shape(0)));
  DDP_ASSERT(result.flat_elements_ == flat_elements_ && result.statistic_count_ == statistic_count_);
  // Their names, initialisation and factors are not those of the methods above.
  result.parameters_ = parameters_;
  result.statistics_ = statistics_;
  result.constants_ = constants_;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    result.layers_[i].name = layers_[i].name;
    if (!std::holds_alternative<PoolLayer>(layers_[i].kind)) result.layers_[i].kind = layers_[i].kind;
  }
  return result;
}

}  // namespace ddp
