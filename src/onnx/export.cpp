#include "onnx/export.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "onnx/file/builder.h"
#include "onnx/patterns/adaptive.h"
#include "onnx/patterns/fold.h"

namespace ddp {
namespace {

using Integers = OnnxBuilder::Integers;
using Attributes = OnnxBuilder::Attributes;

Integers pads_of(const Window2d& window) {
  return {window.padding.top, window.padding.left, window.padding.bottom, window.padding.right};
}

Integers both(const Pair2d& pair) { return {pair.vertical, pair.horizontal}; }

Attributes convolution(const Window2d& window, std::int64_t groups) {
  return {{"dilations", both(window.dilation)},
          {"group", groups},
          {"kernel_shape", Integers{window.height, window.width}},
          {"pads", pads_of(window)},
          {"strides", both(window.stride)}};
}

class Exporter : private OnnxBuilder {
 public:
  Exporter(const ExportedModel& exported, const OnnxExportOptions& options)
      : exported_(exported), graph_(exported.graph), values_(graph_.layers().size()), flat_(graph_.layers().size()) {
    for (const Parameter& p : graph_.parameters()) {
      if (!p.fixed) take(p.name);
    }
    for (const Statistic& s : graph_.statistics()) take(s.name);
    if (options.fold_batch_norm) find_folded();
  }

  OnnxModel run() {
    model_.name = exported_.name;
    model_.metadata = exported_.metadata;
    const Shape& image = graph_.shape(graph_.input());
    output(graph_.input()) = fresh("input");
    const std::string logits = fresh("logits");
    model_.inputs = {{output(graph_.input()), "FLOAT", true, {-1, image.channels, image.height, image.width}, "N"}};
    model_.outputs = {{logits, "FLOAT", true, {-1, graph_.classes()}, "N"}};
    const auto count = static_cast<int>(graph_.layers().size());
    for (int layer = 0; layer < count; ++layer) {
      std::visit([&](const auto& kind) { write(layer, kind); }, graph_.layers()[static_cast<std::size_t>(layer)].kind);
    }
    const int last = count - 1;
    // A separate node, so that the output name does not depend on which layer is last.
    add("Identity", "logits", {flat(last)}, logits);
    for (const Constant& each : graph_.constants()) {
      // No node reads it; an import finds it there, with its name.
      if (is_taken(each.name)) continue;
      constant(each.name, OnnxTensor::of_reals(each.shape, each.values));
    }
    return std::move(model_);
  }

 private:
  const Layer& layer(int index) const { return graph_.layers()[static_cast<std::size_t>(index)]; }
  std::string& output(int index) { return values_[static_cast<std::size_t>(index)]; }
  const std::string& first_input(int index) { return output(layer(index).inputs[0]); }
  bool is_flat(int index) const { return flat_[static_cast<std::size_t>(index)]; }

  // Convolutions and linear layers whose only reader is a batch normalisation.
  void find_folded() {
    std::vector<int> readers(graph_.layers().size(), 0);
    for (const Layer& each : graph_.layers()) {
      for (const int input : each.inputs) ++readers[static_cast<std::size_t>(input)];
    }
    for (std::size_t i = 0; i < graph_.layers().size(); ++i) {
      if (!std::holds_alternative<BatchNormLayer>(graph_.layers()[i].kind)) continue;
      const int before = graph_.layers()[i].inputs[0];
      const bool has_weights = std::holds_alternative<ConvLayer>(layer(before).kind) ||
                               std::holds_alternative<LinearLayer>(layer(before).kind);
      if (has_weights && readers[static_cast<std::size_t>(before)] == 1) folded_[before] = static_cast<int>(i);
    }
  }

  // The node name of an unnamed layer, such as "relu_7".
  void add_layer(int index, const std::string& type, std::vector<std::string> inputs, Attributes attributes = {}) {
    const std::string name = unique(layer(index).name, index);
    output(index) = fresh(name + ".out");
    add(type, name, std::move(inputs), output(index), std::move(attributes));
    flat_[static_cast<std::size_t>(index)] = !layer(index).inputs.empty() && is_flat(layer(index).inputs[0]);
  }

  // The layer's output as a vector.
  std::string flat(int index) {
    if (is_flat(index)) return output(index);
    const std::string name = unique("to_vector", index);
    return add_value("Flatten", name, {output(index)}, name + ".out", {{"axis", std::int64_t{1}}});
  }

  // The layer's output as an image; a vector becomes an image of one pixel.
  std::string image(int index) {
    if (!is_flat(index)) return output(index);
    const std::string name = unique("to_image", index);
    const std::string shape = integers(name + ".shape", {0, graph_.shape(index).channels, 1, 1});
    return add_value("Reshape", name, {output(index), shape}, name + ".out");
  }

  std::vector<float> values(std::int64_t offset, std::int64_t count, std::span<const float> flat) const {
    const auto part = flat.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count));
    return {part.begin(), part.end()};
  }

  // The parameters of a layer, weight first.
  std::vector<const Parameter*> parameters(int index) const {
    std::vector<const Parameter*> found;
    for (const Parameter& p : graph_.parameters()) {
      if (p.layer == index) found.push_back(&p);
    }
    return found;
  }

  std::vector<float> values(const Parameter& p) const { return values(p.offset, p.elements(), exported_.parameters); }

  // Running mean and variance.
  std::vector<std::vector<float>> statistics(int index) const {
    std::vector<std::vector<float>> found;
    for (const Statistic& s : graph_.statistics()) {
      if (s.layer == index) found.push_back(values(s.offset, s.channels, exported_.statistics));
    }
    DDP_ASSERT(found.size() == 2);
    return found;
  }

  // A parameter as an initializer; what is fixed as a Constant node, by which an import tells them apart.
  std::string tensor_of(const Parameter& p) { return tensor_of(p, p.shape, values(p)); }
  std::string tensor_of(const Parameter& p, Integers shape, std::vector<float> floats) {
    if (!p.fixed) return initializer(p.name, std::move(shape), std::move(floats));
    return constant(p.name, OnnxTensor::of_reals(std::move(shape), std::move(floats)));
  }

  // Adds the weight and bias of a convolution or linear layer, including a folded normalisation; returns the names of
  // the initializers.
  std::vector<std::string> weights(int index) {
    const std::vector<const Parameter*> own = parameters(index);
    std::vector<float> weight = values(*own[0]);
    std::vector<float> bias = own.size() > 1 ? values(*own[1]) : std::vector<float>();
    if (const auto norm = folded_.find(index); norm != folded_.end()) fold(norm->second, weight, bias);
    std::vector<std::string> names = {initializer(own[0]->name, own[0]->shape, std::move(weight))};
    if (!bias.empty()) {
      const auto channels = static_cast<std::int64_t>(bias.size());
      names.push_back(
          initializer(own.size() > 1 ? own[1]->name : fresh(layer(index).name + ".bias"), {channels}, std::move(bias)));
    }
    return names;
  }

  void fold(int norm, std::vector<float>& weight, std::vector<float>& bias) const {
    const std::vector<const Parameter*> own = parameters(norm);
    const std::vector<float> scale = values(*own[0]);
    const std::vector<float> shift = values(*own[1]);
    const std::vector<std::vector<float>> running = statistics(norm);
    const float epsilon = std::get<BatchNormLayer>(layer(norm).kind).epsilon;
    bias.resize(scale.size(), 0.0F);
    const std::size_t row = weight.size() / scale.size();
    for (std::size_t c = 0; c < scale.size(); ++c) {
      const double factor = scale[c] / std::sqrt(static_cast<double>(running[1][c]) + epsilon);
      for (std::size_t i = 0; i < row; ++i) {
        weight[c * row + i] = static_cast<float>(weight[c * row + i] * factor);
      }
      bias[c] = static_cast<float>((static_cast<double>(bias[c]) - running[0][c]) * factor + shift[c]);
    }
  }

  void write(int /*index*/, const InputLayer& /*kind*/) {}

  void write(int index, const ConvLayer& conv) {
    std::vector<std::string> inputs = weights(index);
    inputs.insert(inputs.begin(), image(layer(index).inputs[0]));
    // The weight of a linear layer keeps its shape in the file.
    if (parameters(index)[0]->shape.size() == 2) inputs[1] = as_window(inputs[1], graph_.shape(index).channels);
    add_layer(index, "Conv", inputs, convolution(conv.window, conv.groups));
    flat_[static_cast<std::size_t>(index)] = false;
  }

  void write(int index, const ConvTransposeLayer& conv) {
    std::vector<std::string> inputs = weights(index);
    inputs.insert(inputs.begin(), image(layer(index).inputs[0]));
    Attributes attributes = convolution(conv.window, conv.groups);
    attributes["output_padding"] = both(conv.output_padding);
    add_layer(index, "ConvTranspose", inputs, std::move(attributes));
    flat_[static_cast<std::size_t>(index)] = false;
  }

  std::string as_window(const std::string& weight, std::int64_t outputs) {
    const std::string shape = integers(weight + ".shape", {outputs, -1, 1, 1});
    return add_value("Reshape", weight + ".reshape", {weight, shape}, weight + ".window");
  }

  void write(int index, const LinearLayer& /*kind*/) {
    std::vector<std::string> inputs = weights(index);
    inputs.insert(inputs.begin(), flat(layer(index).inputs[0]));
    add_layer(index, "Gemm", inputs, {{"transB", std::int64_t{1}}});
    flat_[static_cast<std::size_t>(index)] = true;
  }

  void write(int index, const BatchNormLayer& norm) {
    const int from = layer(index).inputs[0];
    if (const auto found = folded_.find(from); found != folded_.end() && found->second == index) {
      return pass_on(index);
    }
    std::vector<std::string> inputs = {output(from)};
    for (const Parameter* p : parameters(index)) inputs.push_back(tensor_of(*p));
    for (const Statistic& s : graph_.statistics()) {
      if (s.layer != index) continue;
      inputs.push_back(initializer(s.name, {s.channels}, values(s.offset, s.channels, exported_.statistics)));
    }
    add_layer(index, "BatchNormalization", inputs, {{"epsilon", norm.epsilon}, {"momentum", 1 - norm.momentum}});
  }

  // As PyTorch's exporters write them; group normalisation as the operator of opset 21, with one scale per channel.
  void write(int index, const SampleNormLayer& norm) {
    const int from = layer(index).inputs[0];
    std::vector<std::string> inputs = {output(from)};
    for (const Parameter* p : parameters(index)) inputs.push_back(tensor_of(*p));
    if (norm.over == NormOver::groups) {
      if (norm.groups == graph_.shape(index).channels && !is_flat(from)) {
        return add_layer(index, "InstanceNormalization", inputs, {{"epsilon", norm.epsilon}});
      }
      at_least(21, 10);
      return add_layer(index, "GroupNormalization", inputs, {{"epsilon", norm.epsilon}, {"num_groups", norm.groups}});
    }
    at_least(17, 8);
    const Attributes attributes = {{"axis", std::int64_t{-1}}, {"epsilon", norm.epsilon}};
    if (is_flat(from)) return add_layer(index, "LayerNormalization", inputs, attributes);
    const std::string name = unique(layer(index).name, index);
    inputs[0] =
        add_value("Transpose", name + ".permute", {inputs[0]}, name + ".last", {{"perm", Integers{0, 2, 3, 1}}});
    const std::string normal = add_value("LayerNormalization", name, inputs, name + ".normal", attributes);
    output(index) =
        add_value("Transpose", name + ".permute_back", {normal}, name + ".out", {{"perm", Integers{0, 3, 1, 2}}});
    flat_[static_cast<std::size_t>(index)] = false;
  }

  void write(int index, const ActivationLayer& activation) {
    const std::string& from = first_input(index);
    switch (activation.activation) {
      case Activation::relu:
        return add_layer(index, "Relu", {from});
      case Activation::relu6:
        if (relu6_bounds_.empty()) {
          relu6_bounds_ = {initializer(fresh("relu6.min"), {}, {0}), initializer(fresh("relu6.max"), {}, {6})};
        }
        return add_layer(index, "Clip", {from, relu6_bounds_[0], relu6_bounds_[1]});
      case Activation::sigmoid:
        return add_layer(index, "Sigmoid", {from});
      case Activation::tanh:
        return add_layer(index, "Tanh", {from});
      case Activation::none:
        break;
    }
    pass_on(index);
  }

  void write(int index, const GeluSpec& gelu) {
    at_least(20, 9);
    const std::string approximate = gelu.form == GeluForm::tanh ? "tanh" : "none";
    add_layer(index, "Gelu", {first_input(index)}, {{"approximate", approximate}});
  }

  void write(int index, const SoftmaxSpec& /*kind*/) {
    at_least(13, 7);
    add_layer(index, "Softmax", {first_input(index)}, {{"axis", std::int64_t{1}}});
  }

  void write(int index, const PointwiseSpec& pointwise) {
    const std::string& from = first_input(index);
    switch (pointwise.function) {
      case PointwiseFunction::silu:
        return times(index, "Sigmoid", {});
      case PointwiseFunction::hardswish:
        return times(index, "HardSigmoid", hard_sigmoid());
      case PointwiseFunction::hardsigmoid:
        return add_layer(index, "HardSigmoid", {from}, hard_sigmoid());
      case PointwiseFunction::leaky_relu:
        return add_layer(index, "LeakyRelu", {from}, {{"alpha", pointwise.alpha}});
      case PointwiseFunction::elu:
        return add_layer(index, "Elu", {from}, {{"alpha", pointwise.alpha}});
      case PointwiseFunction::mish:
        break;
    }
    const std::string name = unique("softplus", index);
    times(index, "Tanh", {}, add_value("Softplus", name, {from}, name + ".out"));
  }

  void write(int index, const PreluLayer& /*kind*/) {
    const Parameter& slope = *parameters(index)[0];
    std::string weight = initializer(slope.name, slope.shape, values(slope));
    if (!is_flat(layer(index).inputs[0])) {
      const std::string axes = integers(weight + ".axes", {1, 2});
      weight = add_value("Unsqueeze", weight + ".unsqueeze", {weight, axes}, weight + ".of_channels");
    }
    add_layer(index, "PRelu", {first_input(index), weight});
  }

  static std::map<std::string, OnnxAttribute, std::less<>> hard_sigmoid() {
    return {{"alpha", 1.0F / 6}, {"beta", 0.5F}};
  }

  // The layer as a product of its input and a function of that or of `argument`.
  void times(int index, const std::string& function, Attributes attributes, const std::string& argument = "") {
    const std::string from = first_input(index);
    const std::string name = unique(layer(index).name + "_factor", index);
    const std::string factor =
        add_value(function, name, {argument.empty() ? from : argument}, name + ".out", std::move(attributes));
    add_layer(index, "Mul", {from, factor});
  }

  void write(int index, const ProductLayer& /*kind*/) {
    const int a = layer(index).inputs[0];
    const int b = layer(index).inputs[1];
    if (is_flat(a) == is_flat(b)) return add_layer(index, "Mul", {output(a), output(b)});
    add_layer(index, "Mul", {image(a), image(b)});
    flat_[static_cast<std::size_t>(index)] = false;
  }

  void write(int index, const ConcatLayer& /*kind*/) {
    const int a = layer(index).inputs[0];
    const int b = layer(index).inputs[1];
    const bool flat_result = is_flat(a) && is_flat(b);
    const std::vector<std::string> parts =
        flat_result ? std::vector{output(a), output(b)} : std::vector{image(a), image(b)};
    add_layer(index, "Concat", parts, {{"axis", std::int64_t{1}}});
    flat_[static_cast<std::size_t>(index)] = flat_result;
  }

  // As PyTorch's exporters write them: Slice, and a shuffle as a transposition of groups.
  void write(int index, const ChannelSelectLayer& select) {
    const int from = layer(index).inputs[0];
    const Shape& in = graph_.shape(from);
    std::string value = image(from);
    if (select.count < in.channels) {
      const std::string name = unique("slice", index);
      const std::string starts = integers(name + ".starts", {select.first});
      const std::string ends = integers(name + ".ends", {select.first + select.count});
      value = add_value("Slice", name, {value, starts, ends, integers(name + ".axes", {1})}, name + ".out");
    }
    if (select.groups > 1) value = shuffled(value, select, in, index);
    output(index) = value;
    flat_[static_cast<std::size_t>(index)] = false;
  }

  std::string shuffled(const std::string& value, const ChannelSelectLayer& select, const Shape& in, int index) {
    const std::string name = unique("shuffle", index);
    const std::string groups =
        integers(name + ".groups", {0, select.groups, select.count / select.groups, in.height, in.width});
    const std::string shape = integers(name + ".shape", {0, select.count, in.height, in.width});
    const std::string split = add_value("Reshape", name + ".split", {value, groups}, name + ".split.out");
    const std::string transposed =
        add_value("Transpose", name, {split}, name + ".transposed", {{"perm", Integers{0, 2, 1, 3, 4}}});
    return add_value("Reshape", name + ".join", {transposed, shape}, name + ".out");
  }

  void write(int index, const PoolLayer& pool) {
    const Shape& in = graph_.shape(layer(index).inputs[0]);
    const Window2d& window = pool.window;
    const bool maximum = pool.kind == PoolSpec::Kind::maximum;
    const bool global = window.height == in.height && window.width == in.width && !window.padding.any();
    // A vector has no height and width in ONNX; a window of one element is the identity.
    if (is_flat(layer(index).inputs[0]) && pool.adaptive_height <= 1) return pass_on(index);
    if (pool.adaptive_height > 0) return write_adaptive(index, pool);
    if (global) return add_layer(index, maximum ? "GlobalMaxPool" : "GlobalAveragePool", {first_input(index)});
    Attributes attributes = {{"kernel_shape", Integers{window.height, window.width}},
                             {"pads", pads_of(window)},
                             {"strides", both(window.stride)}};
    if (window.dilation != 1) {
      attributes["dilations"] = both(window.dilation);
      if (!maximum) at_least(19, 9);
    }
    if (!maximum) attributes["count_include_pad"] = std::int64_t{pool.count_padding ? 1 : 0};
    add_layer(index, maximum ? "MaxPool" : "AveragePool", {first_input(index)}, std::move(attributes));
  }

  // ONNX has no operator for it; averages of rows, then of columns, are products with matrices.
  void write_adaptive(int index, const PoolLayer& pool) {
    const Shape& in = graph_.shape(layer(index).inputs[0]);
    const std::int64_t height = pool.adaptive_height;
    const std::int64_t width = pool.adaptive_width;
    const std::string name = unique("/adaptive_pool", index);
    const OnnxTensor columns = OnnxTensor::of_reals({width, in.width}, averaging_matrix(in.width, width));
    const std::string by_rows =
        initializer(fresh(name + ".rows"), {height, in.height}, averaging_matrix(in.height, height));
    const std::string by_columns =
        initializer(fresh(name + ".columns"), {in.width, width}, transposed(columns, {1, 0}).reals);
    const std::string rows = add_value("MatMul", name, {by_rows, image(layer(index).inputs[0])}, name + ".out");
    add_layer(index, "MatMul", {rows, by_columns});
    flat_[static_cast<std::size_t>(index)] = false;
  }

  void write(int index, const PadLayer& pad) {
    const Padding2d& p = pad.padding;
    const std::string pads = integers(unique("pads", index), {0, 0, p.top, p.left, 0, 0, p.bottom, p.right});
    add_layer(index, "Pad", {image(layer(index).inputs[0]), pads},
              {{"mode", std::string(pad.mode == PadMode::reflect ? "reflect" : "edge")}});
    flat_[static_cast<std::size_t>(index)] = false;
  }

  void write(int index, const LrnLayer& lrn) {
    check(lrn.size % 2 == 1, ExitCode::usage,
          "a local response normalisation over {} channels, an even number, cannot be exported: ONNX centres it "
          "differently",
          lrn.size);
    add_layer(index, "LRN", {first_input(index)},
              {{"alpha", lrn.alpha}, {"beta", lrn.beta}, {"bias", lrn.k}, {"size", lrn.size}});
  }

  void write(int index, const DropoutLayer& /*kind*/) { pass_on(index); }

  void write(int index, const AddLayer& /*kind*/) {
    const int a = layer(index).inputs[0];
    const int b = layer(index).inputs[1];
    if (is_flat(a) == is_flat(b)) return add_layer(index, "Add", {output(a), output(b)});
    // ONNX would broadcast [N, C] with [N, C, 1, 1].
    add_layer(index, "Add", {flat(a), flat(b)});
    flat_[static_cast<std::size_t>(index)] = true;
  }

  void write(int index, const AffineLayer& /*kind*/) {
    const bool is_vector = is_flat(layer(index).inputs[0]);
    const std::int64_t channels = graph_.shape(index).channels;
    pass_on(index);
    for (const Parameter* p : parameters(index)) {
      std::vector<float> numbers = values(*p);
      const float nothing = p->bias ? 0 : 1;
      if (p->fixed && std::all_of(numbers.begin(), numbers.end(), [=](float v) { return v == nothing; })) continue;
      // Its own shape if that broadcasts against [N, channels] or [N, channels, height, width].
      Integers tail = p->shape;
      while (!tail.empty() && tail.front() == 1) tail.erase(tail.begin());
      const Integers expected = is_vector ? Integers{channels} : Integers{channels, 1, 1};
      const Integers shape = tail == expected ? p->shape : expected;
      const std::string name = unique(p->bias ? layer(index).name + "_shift" : layer(index).name, index);
      output(index) = add_value(p->bias ? "Add" : "Mul", name,
                                {output(index), tensor_of(*p, shape, std::move(numbers))}, name + ".out");
    }
  }

  void write(int index, const FlattenLayer& flatten) {
    if (is_flat(layer(index).inputs[0])) return pass_on(index);
    std::string from = first_input(index);
    if (flatten.channels_last) {
      const std::string name = unique("channels_last", index);
      from = add_value("Transpose", name, {from}, name + ".out", {{"perm", Integers{0, 2, 3, 1}}});
    }
    add_layer(index, "Flatten", {from}, {{"axis", std::int64_t{1}}});
    flat_[static_cast<std::size_t>(index)] = true;
  }

  // A layer that needs no node.
  void pass_on(int index) {
    output(index) = first_input(index);
    flat_[static_cast<std::size_t>(index)] = is_flat(layer(index).inputs[0]);
  }

  const ExportedModel& exported_;
  const Graph& graph_;
  std::vector<std::string> values_;  // the name of the ONNX value of each layer's output
  std::vector<bool> flat_;           // whether that value has two dimensions
  std::map<int, int> folded_;        // maps layers with weights to the normalisation folded into them
  std::vector<std::string> relu6_bounds_;
};

}  // namespace

OnnxModel export_onnx(const ExportedModel& exported, const OnnxExportOptions& options) {
  DDP_ASSERT(static_cast<std::int64_t>(exported.parameters.size()) == exported.graph.flat_elements());
  DDP_ASSERT(static_cast<std::int64_t>(exported.statistics.size()) == exported.graph.statistic_count());
  return Exporter(exported, options).run();
}

}  // namespace ddp
