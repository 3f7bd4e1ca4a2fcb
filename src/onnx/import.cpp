#include "onnx/import.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text/text.h"
#include "onnx/importer/importer.h"
#include "onnx/importer/order.h"
#include "onnx/patterns/adaptive.h"
#include "onnx/patterns/fold.h"
#include "onnx/patterns/gelu.h"
#include "onnx/patterns/norms.h"
#include "onnx/patterns/random_mask.h"
#include "onnx/patterns/strided.h"
#include "onnx/patterns/swish.h"

namespace ddp {
namespace {

constexpr std::size_t kKnownTypes = 51;

bool is_real_type(const std::string& name) {
  return name == "FLOAT" || name == "FLOAT16" || name == "DOUBLE" || name == "BFLOAT16";
}

std::string extents_text(const std::vector<std::int64_t>& extents) {
  std::vector<std::string> words;
  for (const std::int64_t extent : extents) words.push_back(extent < 0 ? "?" : std::to_string(extent));
  return "[" + join(words) + "]";
}

// Products of extents up to this do not overflow.
void check_size(const Shape& shape) {
  constexpr std::int64_t kMostPixels = 1 << 16;
  constexpr std::int64_t kMostChannels = 1 << 30;
  check(std::max(shape.height, shape.width) <= kMostPixels && shape.channels <= kMostChannels, ExitCode::usage,
        "it produces an image of {}x{}x{}, which is too large", shape.channels, shape.height, shape.width);
}

std::vector<std::string> names_of(const std::vector<OnnxValue>& values) {
  std::vector<std::string> names;
  for (const OnnxValue& value : values) names.push_back(value.name);
  return names;
}

}  // namespace

struct Importer::Known {
  std::string_view type;
  Handler handler;
};

const Importer::Known* Importer::find(std::string_view type) {
  static constexpr std::array<Known, kKnownTypes> known = {{
      {"AdaptiveAveragePool", &Importer::adaptive_average_pool},
      {"Add", &Importer::add},
      {"AveragePool", &Importer::average_pool},
      {"BatchNormalization", &Importer::batch_norm},
      {"Cast", &Importer::cast},
      {"CastLike", &Importer::cast_like},
      {"Clip", &Importer::clip},
      {"Concat", &Importer::concat},
      {"Conv", &Importer::conv},
      {"ConvTranspose", &Importer::conv_transpose},
      {"Div", &Importer::div},
      {"Dropout", &Importer::dropout},
      {"Elu", &Importer::elu},
      {"Flatten", &Importer::flatten},
      {"Gelu", &Importer::gelu},
      {"Gemm", &Importer::gemm},
      {"GlobalAveragePool", &Importer::global_average_pool},
      {"GlobalMaxPool", &Importer::global_max_pool},
      {"GroupNormalization", &Importer::group_norm},
      {"HardSigmoid", &Importer::hardsigmoid},
      {"HardSwish", &Importer::hardswish},
      {"Identity", &Importer::identity},
      {"InstanceNormalization", &Importer::instance_norm},
      {"LRN", &Importer::lrn},
      {"LayerNormalization", &Importer::layer_norm},
      {"LeakyRelu", &Importer::leaky_relu},
      {"LogSoftmax", &Importer::softmax},
      {"MatMul", &Importer::matmul},
      {"MaxPool", &Importer::max_pool},
      {"Mish", &Importer::mish},
      {"Mul", &Importer::mul},
      {"PRelu", &Importer::prelu},
      {"Pad", &Importer::pad},
      {"ReduceMax", &Importer::reduce_max},
      {"ReduceMean", &Importer::reduce_mean},
      {"ReduceSum", &Importer::reduce_sum},
      {"Relu", &Importer::relu},
      {"Reshape", &Importer::reshape},
      {"SequenceAt", &Importer::sequence_at},
      {"Shape", &Importer::shape},
      {"Sigmoid", &Importer::sigmoid},
      {"Slice", &Importer::slice},
      {"Softmax", &Importer::softmax},
      {"Split", &Importer::split},
      {"SplitToSequence", &Importer::split_to_sequence},
      {"Squeeze", &Importer::squeeze},
      {"Sub", &Importer::sub},
      {"Swish", &Importer::silu},
      {"Tanh", &Importer::tanh},
      {"Transpose", &Importer::transpose},
      {"Unsqueeze", &Importer::unsqueeze},
  }};
  if (type.empty()) return known.data();
  const auto* found = std::find_if(known.begin(), known.end(), [&](const Known& each) { return each.type == type; });
  return found == known.end() ? nullptr : found;
}

std::string Importer::known_types() {
  std::vector<std::string> types;
  for (std::size_t i = 0; i < kKnownTypes; ++i) types.emplace_back(find("")[i].type);
  return join(types);
}

Importer::Importer(const OnnxModel& model, ImportRules rules) : model_(model), rules_(rules), names_(!rules.by_use) {
  // Limits what small files may expand to (for example a weight expanded from one number) without rejecting what
  // exporters generate.
  constexpr std::int64_t kAlways = 1 << 24;
  constexpr std::int64_t kTimes = 16;
  for (const auto& [name, tensor] : model.initializers) {
    elements_left_ += static_cast<std::int64_t>(tensor.reals.size() + tensor.integers.size());
  }
  elements_left_ = kAlways + kTimes * elements_left_;
}

void Importer::charge(std::int64_t elements) {
  elements_left_ -= elements;
  check(elements_left_ >= 0, ExitCode::usage, "it computes, or shares, far more weights than the file holds");
}

ImportedModel Importer::run() {
  check(model_.inputs.size() == 1, ExitCode::usage, "a model of {} inputs ({}); one image is supported",
        model_.inputs.size(), join(names_of(model_.inputs)));
  check(model_.outputs.size() == 1, ExitCode::usage, "a model of {} outputs ({}); export it with the logits alone",
        model_.outputs.size(), join(names_of(model_.outputs)));
  const std::string& output = model_.outputs[0].name;
  const std::vector<const OnnxNode*> nodes = live_nodes(model_, output);
  for (const OnnxNode* node : nodes) {
    for (const std::string& input : node->inputs) readers_[input].push_back(node);
  }
  open_input();
  take_initializers();
  for (const OnnxNode* node : nodes) {
    try {
      translate(*node);
    } catch (const Error& error) {
      refuse_unsupported();
      throw Error(error.code(), fmt::format("node '{}' ({}): {}", node->name, node->type, error.what()));
    }
  }
  refuse_unsupported();
  finish(output);
  warn_of_folding();
  return std::move(result_);
}

void Importer::open_input() {
  const OnnxValue& input = model_.inputs[0];
  check(is_real_type(input.type_name), ExitCode::usage, "its input '{}' is of type {}; float images are supported",
        input.name, input.type_name);
  check(input.has_shape && input.shape.size() == 4, ExitCode::usage,
        "its input '{}' has the shape {}; images [N, channels, height, width] are supported", input.name,
        input.has_shape ? extents_text(input.shape) : "?");
  for (std::size_t i = 1; i < 4; ++i) {
    constexpr std::int64_t kLargest = 1 << 16;
    check(
        input.shape[i] >= 1 && input.shape[i] <= kLargest, ExitCode::usage,
        "its input '{}' has the shape {}; only the number of samples may be dynamic, export it with a fixed image size",
        input.name, extents_text(input.shape));
  }
  declared_batch_ = input.shape[0];
  // Keras uses channels-last order; its exports begin with a Transpose or, with one channel, a Reshape.
  const std::vector<const OnnxNode*>& readers = readers_[input.name];
  const bool last = std::all_of(readers.begin(), readers.end(), [&](const OnnxNode* reader) {
    if (reader->type == "Reshape") return input.shape[3] == 1 && input.shape[1] > 1;
    const auto* permutation = reader->type == "Transpose" && reader->has("perm")
                                  ? std::get_if<std::vector<std::int64_t>>(&reader->attributes.find("perm")->second)
                                  : nullptr;
    return permutation != nullptr && *permutation == std::vector<std::int64_t>{0, 3, 1, 2};
  });
  ImportedValue value;
  value.channels_last = last && !readers.empty();
  const Shape shape = value.channels_last ? Shape{input.shape[3], input.shape[1], input.shape[2]}
                                          : Shape{input.shape[1], input.shape[2], input.shape[3]};
  result_.graph = Graph(shape);
  value.layer = result_.graph.input();
  values_[input.name] = value;
}

void Importer::translate(const OnnxNode& node) {
  if (node.outputs.empty()) return;
  // All unsupported operators are collected before the error is reported.
  const bool behind = std::any_of(node.inputs.begin(), node.inputs.end(),
                                  [&](const std::string& input) { return unsupported_values_.contains(input); });
  if (!behind && try_fold(node)) return;
  const Known* known = find(node.type);
  if (known == nullptr) unsupported_.push_back(&node);
  if (known == nullptr || behind) {
    unsupported_values_.insert(node.outputs.begin(), node.outputs.end());
    return;
  }
  ImportedValue result = (this->*known->handler)(node);
  if (result.layer >= 0) check_size(result_.graph.shape(result.layer));
  values_[node.outputs[0]] = std::move(result);
}

bool Importer::try_fold(const OnnxNode& node) {
  if (!folds(node.type)) return false;
  std::vector<const OnnxTensor*> inputs;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].empty()) {
      inputs.push_back(nullptr);
      continue;
    }
    const ImportedValue& each = value(node, i);
    if (each.constant == nullptr) return false;
    inputs.push_back(each.constant.get());
  }
  ImportedValue result;
  result.constant = std::make_shared<OnnxTensor>(fold(node, inputs));
  // A Constant is part of the file and counted once.
  if (node.type != "Constant") charge(result.constant->elements());
  describe_folded(node, result);
  values_[node.outputs[0]] = std::move(result);
  return true;
}

void Importer::finish(const std::string& output) {
  const auto found = values_.find(output);
  check(found != values_.end(), ExitCode::usage,
        "its output '{}' is the second output of a node, which is not supported", output);
  ImportedValue& last = found->second;
  check(last.constant == nullptr, ExitCode::usage, "its output '{}' is a constant", output);
  build(last);
  const Graph& graph = result_.graph;
  const Shape& shape = graph.shape(last.layer);
  check(shape.height == 1 && shape.width == 1 && !last.padding.any(), ExitCode::usage,
        "its output '{}' is not a vector of logits [N, classes]", output);
  const auto kind_at = [&](int layer) { return graph.layers()[static_cast<std::size_t>(layer)]; };
  Layer before = kind_at(last.layer);
  while (std::holds_alternative<FlattenLayer>(before.kind)) before = kind_at(before.inputs[0]);
  check(!std::holds_alternative<SoftmaxSpec>(before.kind), ExitCode::usage,
        "its output '{}' reads a Softmax, which is supported only in the middle or as the last node", output);
  check(graph.parameter_count() > 0, ExitCode::usage, "it has no weights to train");
  std::vector<bool> read(graph.layers().size(), false);
  read[static_cast<std::size_t>(last.layer)] = true;
  for (const Layer& layer : graph.layers()) {
    for (const int input : layer.inputs) read[static_cast<std::size_t>(input)] = true;
  }
  const auto unread = std::find(read.begin(), read.end(), false);
  if (unread != read.end()) {
    const auto layer = static_cast<std::size_t>(unread - read.begin());
    throw Error(ExitCode::usage,
                fmt::format("only the shape of the output of its layer '{}' is used, which is not supported",
                            graph.layers()[layer].name));
  }
  DDP_ASSERT(static_cast<std::int64_t>(result_.parameters.size()) == graph.parameter_count());
  std::vector<float> flat(static_cast<std::size_t>(graph.flat_elements()));
  auto next = result_.parameters.cbegin();
  for (const Parameter& p : graph.parameters()) {
    std::copy_n(next, p.elements(), flat.begin() + p.offset);
    next += p.elements();
  }
  result_.parameters = std::move(flat);
  DDP_ASSERT(static_cast<std::int64_t>(result_.statistics.size()) == graph.statistic_count());
  give_names();
  result_.metadata = model_.metadata;
}

ImportedValue& Importer::value(const OnnxNode& node, std::size_t input) {
  check(!node.input(input).empty(), ExitCode::usage, "its input {} is missing", input);
  const auto found = values_.find(node.input(input));
  check(found != values_.end(), ExitCode::usage, "it reads '{}', a second output, which is not supported",
        node.input(input));
  return found->second;
}

const ImportedValue* Importer::constant(const OnnxNode& node, std::size_t input) {
  if (node.input(input).empty()) return nullptr;
  const ImportedValue& found = value(node, input);
  check(found.constant != nullptr, ExitCode::usage,
        "its input '{}' is computed from the image; only constants are "
        "supported there",
        node.input(input));
  return &found;
}

ImportedValue& Importer::activation(const OnnxNode& node, std::size_t input) {
  ImportedValue& found = value(node, input);
  check(found.constant == nullptr, ExitCode::usage, "its input '{}' is a constant, which is not supported there",
        node.input(input));
  check(!found.softmax, ExitCode::usage, "it reads a Softmax, which is supported only at the end");
  build(found);
  const bool groups = node.type == "Transpose" || node.type == "Reshape";
  check(found.rank != 5 || groups, ExitCode::usage,
        "its input has five extents; only shuffles of channels are supported");
  check(found.sequence.empty() || node.type == "SequenceAt", ExitCode::usage, "its input is a list of parts");
  check(found.rank != 3 || node.type == "Unsqueeze", ExitCode::usage,
        "its input has three extents; images [N, channels, height, width] and vectors [N, channels] are supported");
  return found;
}

ImportedValue& Importer::image(const OnnxNode& node, std::size_t input, bool padding) {
  ImportedValue& found = activation(node, input);
  check(found.rank == 4, ExitCode::usage, "its input is a vector, not an image");
  check(!found.channels_last, ExitCode::usage,
        "its input has the channels last, [N, H, W, C]; channels first are "
        "supported");
  check(padding || !found.padding.any(), ExitCode::usage,
        "a Pad is supported right before a convolution or pooling "
        "only");
  return found;
}

void Importer::build(ImportedValue& value) {
  if (value.pending == nullptr) return;
  const PendingLayer layer = *std::exchange(value.pending, nullptr);
  Graph& graph = result_.graph;
  const std::string name = names_.choose(layer.weight_name, *layer.node);
  switch (layer.kind) {
    case PendingLayer::Kind::linear:
      value.layer = graph.linear(name, layer.from, layer.channels, !layer.bias.empty());
      break;
    case PendingLayer::Kind::conv: {
      ConvLayer conv = layer.conv;
      conv.bias = !layer.bias.empty();
      value.layer = graph.conv(name, layer.from, conv);
      break;
    }
    case PendingLayer::Kind::affine: {
      const ChannelTensor scale = {name + ".weight", {layer.channels, 1, 1, 1}, layer.weight_fixed};
      const ChannelTensor shift = {name + ".bias", {layer.channels}, layer.bias_fixed};
      value.layer = graph.affine(name, layer.from, scale, layer.bias.empty() ? nullptr : &shift);
      break;
    }
  }
  check_size(graph.shape(value.layer));
  if (layer.lost_norm) folded_norms_.insert(value.layer);
  keep(layer.weight, result_.parameters);
  keep(layer.bias, result_.parameters);
  rename(name + ".weight", layer.kept_name, layer.weight_shape);
  if (!layer.bias.empty()) rename(name + ".bias", layer.bias_name, layer.bias_shape);
  if (layer.weight_name.empty() || layer.weight_fixed) return;
  const auto [user, first] = weight_users_.emplace(layer.weight_name, layer.node->name);
  if (!first) {
    log_warning("the nodes '{}' and '{}' share the weights '{}'; here each trains its own", shown(user->second),
                shown(layer.node->name), shown(layer.weight_name));
  }
}

void Importer::keep(const std::vector<float>& values, std::vector<float>& flat) {
  const bool finite = std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
  check(finite, ExitCode::data, "its weights are not all finite numbers");
  flat.insert(flat.end(), values.begin(), values.end());
}

std::vector<float> Importer::numbers(const OnnxNode& node, std::size_t input, std::int64_t count) {
  const ImportedValue* found = constant(node, input);
  check(found != nullptr, ExitCode::usage, "its input {} is missing", input);
  const OnnxTensor& tensor = *found->constant;
  check(tensor.type == OnnxTensor::Type::real, ExitCode::usage, "its input '{}' is of type {}, not of real numbers",
        node.input(input), tensor.type_name);
  check(tensor.elements() == count, ExitCode::usage, "its input '{}' has {} elements, {} are needed", node.input(input),
        tensor.elements(), count);
  charge(count);
  return tensor.reals;
}

bool Importer::only_reader(const OnnxNode& node, std::size_t input) const {
  const std::string& name = node.input(input);
  const auto found = readers_.find(name);
  return found != readers_.end() && found->second.size() == 1 && model_.outputs[0].name != name;
}

std::vector<std::int64_t> Importer::extents(const ImportedValue& value) const {
  Shape shape = result_.graph.shape(value.layer);
  shape.height += value.padding.top + value.padding.bottom;
  shape.width += value.padding.left + value.padding.right;
  if (value.rank == 2) return {kBatchExtent, shape.channels};
  if (value.rank == 3) return {kBatchExtent, shape.channels, 1};
  if (value.rank == 5) {
    const std::int64_t within = shape.channels / value.groups;
    return {kBatchExtent, value.shuffled ? within : value.groups, value.shuffled ? value.groups : within, shape.height,
            shape.width};
  }
  if (value.channels_last) return {kBatchExtent, shape.height, shape.width, shape.channels};
  return {kBatchExtent, shape.channels, shape.height, shape.width};
}

bool Importer::is_batch(std::int64_t extent) const {
  return extent == kBatchExtent || (declared_batch_ > 0 && extent == declared_batch_);
}

bool Importer::non_negative(int layer) const {
  const std::vector<Layer>& layers = result_.graph.layers();
  std::vector<bool> known(static_cast<std::size_t>(layer) + 1, false);
  for (std::size_t i = 0; i < known.size(); ++i) {
    const LayerKind& kind = layers[i].kind;
    if (const auto* activation = std::get_if<ActivationLayer>(&kind)) {
      known[i] = activation->activation != Activation::tanh && activation->activation != Activation::none;
    } else if (std::holds_alternative<PoolLayer>(kind) || std::holds_alternative<DropoutLayer>(kind) ||
               std::holds_alternative<AddLayer>(kind)) {
      known[i] = std::all_of(layers[i].inputs.begin(), layers[i].inputs.end(),
                             [&](int input) { return known[static_cast<std::size_t>(input)]; });
    }
  }
  return known.back();
}

ImportedModel import_onnx(const std::filesystem::path& path) { return import_onnx_bytes(read_onnx_file(path), path); }

ImportedModel import_onnx_bytes(const std::string& bytes, const std::filesystem::path& path, ImportRules rules) {
  OnnxModel model = parse_onnx(bytes, path);
  join_gelu(model);
  join_swish(model);
  join_random_masks(model);
  join_norms(model);
  join_strided(model);
  join_adaptive_pools(model);
  try {
    return Importer(model, rules).run();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", path.string(), error.what()));
  }
}

}  // namespace ddp
