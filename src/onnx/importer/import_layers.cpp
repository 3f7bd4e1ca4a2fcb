// Convolutions, products, normalisations and other layers of an ONNX model.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "onnx/importer/importer.h"
#include "onnx/patterns/fold.h"
#include "onnx/patterns/swish.h"

namespace ddp {
namespace {

// The output of `layer`, keeping the other attributes of its input.
ImportedValue behind(const ImportedValue& input, int layer) {
  ImportedValue value = input;
  value.layer = layer;
  return value;
}

ImportedValue image_of(int layer) {
  ImportedValue value;
  value.layer = layer;
  return value;
}

}  // namespace

ImportedValue Importer::conv(const OnnxNode& node) {
  const ImportedValue& x = image(node, 0, /*padding=*/true);
  const Shape in = result_.graph.shape(x.layer);
  const ImportedValue* weight = constant(node, 1);
  check(weight != nullptr && weight->constant->shape.size() == 4, ExitCode::usage,
        "its weights are not [channels, channels / groups, height, width]");
  const std::vector<std::int64_t>& shape = weight->constant->shape;
  check(node.integers("kernel_shape", {shape[2], shape[3]}) == std::vector<std::int64_t>({shape[2], shape[3]}),
        ExitCode::usage, "its kernel_shape is not that of its weights");
  const std::int64_t groups = node.integer("group", 1);
  check(groups >= 1 && shape[0] >= 1 && shape[1] >= 1 && in.channels % groups == 0 && shape[0] % groups == 0 &&
            shape[1] == in.channels / groups,
        ExitCode::usage, "its weights have {} channels per group in {} groups, but its input has {} channels", shape[1],
        groups, in.channels);
  Window2d window = window_of(node, shape[2], shape[3], in.height + x.padding.top + x.padding.bottom,
                              in.width + x.padding.left + x.padding.right)
                        .window;
  window.padding = window.padding + x.padding;
  ImportedValue result;
  result.pending = std::make_shared<PendingLayer>();
  PendingLayer& layer = *result.pending;
  layer.node = &node;
  layer.from = x.layer;
  layer.channels = shape[0];
  layer.weight_name = weight->origin;
  layer.kept_name = given_name(weight->origin);
  layer.weight = numbers(node, 1, weight->constant->elements());
  // The weight of a linear layer, as [outputs, inputs].
  if (const auto own = model_.initializers.find(weight->origin);
      own != model_.initializers.end() &&
      own->second.shape == std::vector<std::int64_t>{shape[0], shape[1] * shape[2] * shape[3]}) {
    layer.weight_shape = own->second.shape;
  }
  layer.conv.channels = shape[0];
  layer.conv.window = window;
  layer.conv.groups = groups;
  if (node.input(2).empty()) return result;
  layer.bias = numbers(node, 2, shape[0]);
  const ImportedValue& bias = *constant(node, 2);
  layer.bias_name = given_name(bias.origin);
  // The names that PyTorch's two exporters give to convolutions with a folded batch normalisation.
  layer.lost_norm = bias.origin.ends_with(".weight_bias") || weight->origin.starts_with("onnx::Conv_");
  if (layer.lost_norm && !rules_.by_use) layer.bias_name.clear();
  if (is_added(node, bias, layer.bias)) layer.bias.clear();
  return result;
}

ImportedValue Importer::conv_transpose(const OnnxNode& node) {
  const ImportedValue x = image(node, 0);
  const Shape in = result_.graph.shape(x.layer);
  const ImportedValue* weight = constant(node, 1);
  check(weight != nullptr && weight->constant->shape.size() == 4, ExitCode::usage,
        "its weights are not [channels, output channels / groups, height, width]");
  const std::vector<std::int64_t>& shape = weight->constant->shape;
  const std::int64_t groups = node.integer("group", 1);
  constexpr std::int64_t kMostChannels = 1 << 30;
  check(groups >= 1 && shape[0] == in.channels && shape[0] % groups == 0 && shape[1] >= 1 &&
            shape[1] <= kMostChannels / groups,
        ExitCode::usage, "its weights are for {} channels in {} groups, but its input has {} channels", shape[0],
        groups, in.channels);
  ConvTransposeLayer layer;
  layer.channels = shape[1] * groups;
  const TransposedWindow found = transposed_window_of(node, shape[2], shape[3], in.height, in.width);
  layer.window = found.window;
  layer.output_padding = found.output_padding;
  layer.groups = groups;
  layer.bias = !node.input(2).empty();
  const std::vector<float> values = numbers(node, 1, weight->constant->elements());
  const std::string name = names_.choose(weight->origin, node);
  ImportedValue result = image_of(result_.graph.conv_transpose(name, x.layer, layer));
  keep(values, result_.parameters);
  rename(name + ".weight", given_name(weight->origin), {});
  if (!layer.bias) return result;
  keep(numbers(node, 2, layer.channels), result_.parameters);
  rename(name + ".bias", given_name(constant(node, 2)->origin), {});
  return result;
}

ImportedValue Importer::linear(const OnnxNode& node, const OnnxTensor& weight, bool transpose) {
  const ImportedValue& x = activation(node, 0);
  const bool per_position = x.rank == 4 && x.channels_last && !x.padding.any();
  check(x.rank == 2 || per_position, ExitCode::usage,
        "its input is an image; it must be flattened first, or have its channels last");
  check(weight.type == OnnxTensor::Type::real && weight.shape.size() == 2, ExitCode::usage,
        "its weights are not a matrix of real numbers");
  const OnnxTensor matrix = transpose ? transposed(weight, {1, 0}) : weight;
  const std::int64_t inputs = result_.graph.shape(x.layer).channels;
  check(matrix.shape[1] == inputs && matrix.shape[0] >= 1, ExitCode::usage, "its weights are for {} inputs, it has {}",
        matrix.shape[1], inputs);
  charge(matrix.elements());
  ImportedValue result;
  result.rank = x.rank;
  result.channels_last = x.channels_last;
  result.pending = std::make_shared<PendingLayer>();
  PendingLayer& layer = *result.pending;
  layer.node = &node;
  layer.from = x.layer;
  layer.kind = per_position ? PendingLayer::Kind::conv : PendingLayer::Kind::linear;
  if (per_position) {
    layer.conv.channels = matrix.shape[0];
    layer.weight_shape = matrix.shape;
  }
  layer.weight_name = value(node, 1).origin;
  layer.weight = matrix.reals;
  layer.channels = matrix.shape[0];
  // If the module multiplies by a parameter [inputs, outputs], ours is its transpose.
  const std::string name = given_name(layer.weight_name);
  const bool turned = transpose && !name.empty() && model_.initializers.contains(node.input(1));
  if (!turned) layer.kept_name = name;
  if (turned && rules_.by_use) layer.kept_name = name.ends_with(".weight") ? name : name + ".weight";
  if (turned && model_.producer.starts_with("pytorch")) {
    log_info(
        "the matrix '{}' [inputs, outputs] is trained as a weight [outputs, inputs] of a linear layer; transpose "
        "and rename it when you load what is exported as safetensors",
        name);
  }
  return result;
}

ImportedValue Importer::gemm(const OnnxNode& node) {
  check(node.integer("transA", 0) == 0, ExitCode::usage, "its transA is not supported");
  const ImportedValue* weight = constant(node, 1);
  check(weight != nullptr, ExitCode::usage, "it has no weights");
  ImportedValue result = linear(node, *weight->constant, node.integer("transB", 0) == 0);
  // Folded into the weights, these factors would change the exported weights.
  const float alpha = node.real("alpha", 1);
  const bool has_bias = !node.input(2).empty();
  check(alpha == 1 && (!has_bias || node.real("beta", 1) == 1), ExitCode::usage,
        "its alpha or beta is not 1; export without graph optimizers that put factors into it");
  if (!has_bias) return result;
  PendingLayer& layer = *result.pending;
  layer.bias = numbers(node, 2, layer.channels);
  layer.bias_name = given_name(constant(node, 2)->origin);
  return result;
}

ImportedValue Importer::matmul(const OnnxNode& node) {
  const ImportedValue* weight = constant(node, 1);
  check(weight != nullptr, ExitCode::usage, "it has no weights");
  return linear(node, *weight->constant, /*transpose=*/true);
}

ImportedValue Importer::add(const OnnxNode& node) {
  for (const std::size_t input : {std::size_t{0}, std::size_t{1}}) {
    if (value(node, input).constant != nullptr) return add_constant(node, input);
  }
  const ImportedValue a = activation(node, 0);
  const ImportedValue& b = activation(node, 1);
  check(a.rank == b.rank && a.channels_last == b.channels_last && !a.padding.any() && !b.padding.any(), ExitCode::usage,
        "its inputs are of different kinds");
  check(a.layer != b.layer, ExitCode::usage, "a sum of a value with itself is not supported");
  return behind(a, result_.graph.add(a.layer, b.layer));
}

ImportedValue Importer::batch_norm(const OnnxNode& node) {
  const ImportedValue& x = activation(node, 0);
  check(!x.channels_last && !x.padding.any(), ExitCode::usage, "its input does not have the channels second");
  const std::int64_t channels = result_.graph.shape(x.layer).channels;
  const ImportedValue* scale = constant(node, 1);
  check(scale != nullptr, ExitCode::usage, "it has no scale");
  const std::vector<float> weight = numbers(node, 1, channels);
  const std::vector<float> bias = numbers(node, 2, channels);
  const std::vector<float> mean = numbers(node, 3, channels);
  const std::vector<float> variance = numbers(node, 4, channels);
  check(std::all_of(variance.begin(), variance.end(), [](float v) { return v >= 0; }), ExitCode::data,
        "it has a variance below 0");
  BatchNormLayer layer;
  layer.epsilon = node.real("epsilon", 1e-5F);
  // ONNX's momentum is the fraction that is kept.
  layer.momentum = 1 - node.real("momentum", 0.9F);
  check(layer.epsilon > 0 && layer.epsilon < 1 && layer.momentum >= 0 && layer.momentum <= 1, ExitCode::usage,
        "its epsilon or momentum is out of range");
  // PyTorch's affine=False: constant ones and zeros that are not parameters of the module.
  const ImportedValue* shift = constant(node, 2);
  const bool of_keras = !rules_.by_use && model_.producer.starts_with("tf2onnx");
  layer.fixed_weight = !of_keras && is_fixed(scale, weight, 1);
  layer.fixed_bias = !of_keras && is_fixed(shift, bias, 0);
  std::string named = scale->origin;
  const std::string of_mean = constant(node, 3)->origin;
  const bool unnamed = rules_.by_use ? layer.fixed_weight || given_name(named).empty() : is_made_up(named);
  if (unnamed && of_mean.ends_with(".running_mean")) {
    named = of_mean.substr(0, of_mean.size() - std::string_view("running_mean").size()) + "weight";
  }
  const std::string name = names_.choose(named, node);
  ImportedValue result = behind(x, result_.graph.batch_norm(name, x.layer, layer));
  if (!layer.fixed_weight) rename(name + ".weight", given_name(scale->origin), {channels});
  if (!layer.fixed_bias) rename(name + ".bias", given_name(shift->origin), {channels});
  if (layer.fixed_weight) keep_constant(*scale, given_name(scale->origin));
  if (layer.fixed_bias) keep_constant(*shift, given_name(shift->origin));
  rename_statistics(given_name(of_mean), given_name(constant(node, 4)->origin));
  keep(weight, result_.parameters);
  keep(bias, result_.parameters);
  keep(mean, result_.statistics);
  keep(variance, result_.statistics);
  return result;
}

ImportedValue Importer::activate(const OnnxNode& node, Activation kind) {
  const ImportedValue& x = activation(node, 0);
  check(!x.padding.any(), ExitCode::usage, "a Pad is supported only directly before a convolution or pooling");
  return behind(x, result_.graph.activation(x.layer, kind));
}

ImportedValue Importer::gelu(const OnnxNode& node) {
  const ImportedValue& x = activation(node, 0);
  check(!x.padding.any(), ExitCode::usage, "a Pad is supported only directly before a convolution or pooling");
  const std::string approximate = node.text("approximate", "none");
  check(approximate == "none" || approximate == "tanh", ExitCode::usage,
        "its attribute approximate is '{}'; 'none' and 'tanh' are supported", approximate);
  return behind(x, result_.graph.gelu(x.layer, approximate == "tanh" ? GeluForm::tanh : GeluForm::exact));
}

ImportedValue Importer::pointwise(const OnnxNode& node, PointwiseFunction function, float alpha) {
  const ImportedValue& x = activation(node, 0);
  check(!x.padding.any(), ExitCode::usage, "a Pad is supported only directly before a convolution or pooling");
  return behind(x, result_.graph.pointwise(x.layer, function, alpha));
}

ImportedValue Importer::prelu(const OnnxNode& node) {
  const ImportedValue x = activation(node, 0);
  check(!x.padding.any(), ExitCode::usage, "a Pad is supported only directly before a convolution or pooling");
  const ImportedValue* slope = constant(node, 1);
  check(slope != nullptr, ExitCode::usage, "it has no slope");
  const std::int64_t channels = result_.graph.shape(x.layer).channels;
  // By numpy's broadcasting: [channels] if channels come last, [channels, 1, 1] for other images.
  std::vector<std::int64_t> extents = slope->constant->shape;
  while (!extents.empty() && extents.front() == 1) extents.erase(extents.begin());
  const bool shared = extents.empty();
  const bool last = x.rank == 2 || x.channels_last;
  check(shared || extents == (last ? std::vector<std::int64_t>{channels} : std::vector<std::int64_t>{channels, 1, 1}),
        ExitCode::usage, "its slope is neither one number per channel nor one for all");
  const std::vector<float> weight = numbers(node, 1, shared ? 1 : channels);
  const std::string name = names_.choose(slope->origin, node);
  ImportedValue result = behind(x, result_.graph.prelu(name, x.layer, shared));
  rename(name + ".weight", given_name(slope->origin), {static_cast<std::int64_t>(weight.size())});
  keep(weight, result_.parameters);
  return result;
}

ImportedValue Importer::silu(const OnnxNode& node) {
  const float alpha = node.real("alpha", 1);
  check(alpha == 1, ExitCode::usage, "its alpha is {}; 1 (SiLU) is supported", alpha);
  return pointwise(node, PointwiseFunction::silu);
}

ImportedValue Importer::hardsigmoid(const OnnxNode& node) {
  check(is_pytorch_hard_sigmoid(node), ExitCode::usage, "its alpha and beta are {} and {}; 1/6 and 1/2 are supported",
        node.real("alpha", 0.2F), node.real("beta", 0.5F));
  return pointwise(node, PointwiseFunction::hardsigmoid);
}

ImportedValue Importer::leaky_relu(const OnnxNode& node) {
  return pointwise(node, PointwiseFunction::leaky_relu, node.real("alpha", 0.01F));
}

ImportedValue Importer::elu(const OnnxNode& node) {
  return pointwise(node, PointwiseFunction::elu, node.real("alpha", 1));
}

ImportedValue Importer::clip(const OnnxNode& node) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const auto bound = [&](const char* name, std::size_t input, float otherwise) {
    return constant(node, input) != nullptr ? numbers(node, input, 1)[0] : node.real(name, otherwise);
  };
  const float low = bound("min", 1, -kLargest);
  const float high = bound("max", 2, kLargest);
  check(low == 0 && (high == 6 || high >= kLargest), ExitCode::usage,
        "it clips to {}..{}; 0..6 (ReLU6) and 0 and above (ReLU) are supported", low, high);
  return activate(node, high == 6 ? Activation::relu6 : Activation::relu);
}

ImportedValue Importer::pool(const OnnxNode& node, PoolLayer layer, const OnnxWindow& found) {
  const ImportedValue& x = image(node, 0, /*padding=*/true);
  layer.window = found.window;
  Padding2d& padding = layer.window.padding;
  padding = padding + x.padding + found.overhang;
  check(std::max(padding.top, padding.bottom) < layer.window.rows() &&
            std::max(padding.left, padding.right) < layer.window.columns(),
        ExitCode::usage, "its padding is as large as its {}x{} window", layer.window.rows(), layer.window.columns());
  return image_of(result_.graph.pool(x.layer, layer));
}

namespace {

OnnxWindow pooling_window(const OnnxNode& node, const Shape& in, const Padding2d& padding) {
  const std::vector<std::int64_t> kernel = node.integers("kernel_shape", {});
  check(kernel.size() == 2, ExitCode::usage, "its kernel_shape is not height and width");
  return window_of(node, kernel[0], kernel[1], in.height + padding.top + padding.bottom,
                   in.width + padding.left + padding.right);
}

}  // namespace

ImportedValue Importer::max_pool(const OnnxNode& node) {
  const ImportedValue& x = image(node, 0, /*padding=*/true);
  check(!x.padding.any() || non_negative(x.layer), ExitCode::usage,
        "zeros from a Pad could win its maximum; this is supported only after a ReLU");
  PoolLayer layer;
  layer.kind = PoolSpec::Kind::maximum;
  return pool(node, layer, pooling_window(node, result_.graph.shape(x.layer), x.padding));
}

ImportedValue Importer::average_pool(const OnnxNode& node) {
  const ImportedValue& x = image(node, 0, /*padding=*/true);
  const OnnxWindow window = pooling_window(node, result_.graph.shape(x.layer), x.padding);
  const bool counts = node.integer("count_include_pad", 0) != 0;
  // Zeros of a Pad are part of the image, those of the padding count with count_include_pad, and positions beyond both
  // never count. Our windows count all or none.
  const bool own = window.window.padding.any();
  const bool with = x.padding.any() || (own && counts);
  const bool without = window.overhang.any() || (own && !counts);
  check(!with || !without, ExitCode::usage,
        "zeros that count and zeros that do not, in one average, are not supported");
  PoolLayer layer;
  layer.kind = PoolSpec::Kind::average;
  layer.count_padding = !without;
  return pool(node, layer, window);
}

// Written by join_adaptive_pools() (onnx/patterns/adaptive.h).
ImportedValue Importer::adaptive_average_pool(const OnnxNode& node) {
  const int from = image(node, 0).layer;
  const Shape in = result_.graph.shape(from);
  check(node.integers("input", {}) == std::vector<std::int64_t>({in.height, in.width}), ExitCode::usage,
        "it pools windows of an image of another size than {}x{}", in.height, in.width);
  const Pair2d size = pair_of(node, "output", 0, 1);
  return image_of(result_.graph.adaptive_average_pool(from, size.vertical, size.horizontal));
}

ImportedValue Importer::global_average_pool(const OnnxNode& node) {
  return image_of(result_.graph.global_average_pool(image(node, 0).layer));
}

ImportedValue Importer::global_max_pool(const OnnxNode& node) {
  const int from = image(node, 0).layer;
  const Shape in = result_.graph.shape(from);
  PoolLayer layer;
  layer.kind = PoolSpec::Kind::maximum;
  layer.window = {.height = in.height, .width = in.width};
  return image_of(result_.graph.pool(from, layer));
}

ImportedValue Importer::lrn(const OnnxNode& node) {
  LrnLayer layer;
  layer.size = node.integer("size", 0);
  layer.alpha = node.real("alpha", 1e-4F);
  layer.beta = node.real("beta", 0.75F);
  layer.k = node.real("bias", 1);
  constexpr std::int64_t kLargest = 1 << 16;
  // ONNX and PyTorch centre an even number of channels differently.
  check(layer.size >= 1 && layer.size <= kLargest && layer.size % 2 == 1, ExitCode::usage,
        "it covers {} channels; only odd numbers are supported", layer.size);
  check(std::isfinite(layer.alpha) && std::isfinite(layer.beta) && layer.alpha >= 0 && layer.k > 0, ExitCode::usage,
        "its alpha, beta or bias is out of range");
  return image_of(result_.graph.lrn(image(node, 0).layer, layer));
}

// From the shape of the mask, a fourth input (random_mask.h).
DropoutUnit Importer::dropout_unit(const OnnxNode& node, const ImportedValue& x) {
  const ImportedValue* given = constant(node, 3);
  if (given == nullptr) return DropoutUnit::element;
  std::vector<std::int64_t> whole = extents(x);
  std::vector<std::int64_t> mask = given->constant->integers;
  check(mask.size() == whole.size() && is_batch(mask[0]), ExitCode::usage,
        "the shape of its random mask does not begin with the number of samples");
  const auto channels = static_cast<std::size_t>(channel_axis(x));
  if (std::all_of(mask.begin() + 1, mask.end(), [](std::int64_t extent) { return extent == 1; })) {
    return DropoutUnit::sample;
  }
  mask[0] = whole[0] = 1;
  if (mask == whole) return DropoutUnit::element;
  for (std::size_t i = 1; i < whole.size(); ++i) whole[i] = i == channels ? whole[i] : 1;
  check(mask == whole, ExitCode::usage,
        "its random mask drops neither elements, nor channels, nor samples; the other parts are not supported");
  return DropoutUnit::channel;
}

ImportedValue Importer::dropout(const OnnxNode& node) {
  const ImportedValue& x = activation(node, 0);
  check(!x.padding.any(), ExitCode::usage, "a Pad is supported only directly before a convolution or pooling");
  const float rate = constant(node, 1) != nullptr ? numbers(node, 1, 1)[0] : node.real("ratio", 0.5F);
  if (rate == 0) return x;
  return behind(x, result_.graph.dropout(x.layer, rate, dropout_unit(node, x)));
}

}  // namespace ddp
