// Convolutions, products, normalisations and other layers of an ONNX model.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "model/onnx/fold.h"
#include "model/onnx/importer.h"

namespace ddp {
namespace {

// The output of `layer`, with what else is known of its input.
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

Padding operator+(const Padding& a, const Padding& b) {
  return {a.top + b.top, a.left + b.left, a.bottom + b.bottom, a.right + b.right};
}

// The columns of a [outputs, C*H*W] weight from the order (h, w, c), in which the file flattened, into PyTorch's.
void reorder_columns(std::vector<float>& weight, std::int64_t outputs, const Shape& image) {
  const std::int64_t area = image.height * image.width;
  const std::int64_t inputs = image.elements();
  std::vector<float> row(static_cast<std::size_t>(inputs));
  for (std::int64_t o = 0; o < outputs; ++o) {
    const auto begin = weight.begin() + o * inputs;
    for (std::int64_t c = 0; c < image.channels; ++c) {
      for (std::int64_t p = 0; p < area; ++p) {
        row[static_cast<std::size_t>(c * area + p)] = *(begin + p * image.channels + c);
      }
    }
    std::copy(row.begin(), row.end(), begin);
  }
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
        ExitCode::usage, "weights for {} of {} groups' channels do not fit its {} input channels", shape[1], groups,
        in.channels);
  const WindowSpec window = window_of(node, shape[2], shape[3], in.height + x.padding.top + x.padding.bottom,
                                      in.width + x.padding.left + x.padding.right);
  const Padding padding = window.padding + x.padding;
  ImportedValue result;
  result.pending = std::make_shared<PendingLayer>();
  PendingLayer& layer = *result.pending;
  layer.node = &node;
  layer.from = x.layer;
  layer.weight_name = weight->origin;
  layer.weight = numbers(node, 1, weight->constant->elements());
  layer.conv.channels = shape[0];
  layer.conv.kernel = shape[2];
  layer.conv.kernel_w = shape[3] == shape[2] ? 0 : shape[3];
  layer.conv.stride = window.stride;
  layer.conv.padding = padding.top;
  layer.conv.padding_w = padding.left;
  layer.conv.padding_bottom = padding.bottom;
  layer.conv.padding_right = padding.right;
  layer.conv.groups = groups;
  if (node.input(2).empty()) return result;
  layer.bias = numbers(node, 2, shape[0]);
  // PyTorch's newer exporter computes a bias of zeros where the module has none.
  const bool computed = !model_.initializers.contains(node.input(2));
  if (computed && std::all_of(layer.bias.begin(), layer.bias.end(), [](float b) { return b == 0; })) layer.bias.clear();
  return result;
}

ImportedValue Importer::linear(const OnnxNode& node, const OnnxTensor& weight, bool transpose, float scale) {
  const ImportedValue& x = activation(node, 0);
  check(x.rank == 2, ExitCode::usage, "its input is an image; it must be flattened first");
  check(weight.type == OnnxTensor::Type::real && weight.shape.size() == 2, ExitCode::usage,
        "its weights are no matrix of real numbers");
  const OnnxTensor matrix = transpose ? transposed(weight, {1, 0}) : weight;
  const std::int64_t inputs = result_.graph.shape(x.layer).channels;
  check(matrix.shape[1] == inputs && matrix.shape[0] >= 1, ExitCode::usage, "its weights are for {} inputs, it has {}",
        matrix.shape[1], inputs);
  charge(matrix.elements());
  ImportedValue result;
  result.rank = 2;
  result.pending = std::make_shared<PendingLayer>();
  PendingLayer& layer = *result.pending;
  layer.node = &node;
  layer.from = x.layer;
  layer.linear = true;
  layer.weight_name = value(node, 1).origin;
  layer.weight = matrix.reals;
  layer.outputs = matrix.shape[0];
  if (scale != 1) {
    for (float& each : layer.weight) each *= scale;
  }
  if (x.unflattened.channels > 0) reorder_columns(layer.weight, layer.outputs, x.unflattened);
  return result;
}

ImportedValue Importer::gemm(const OnnxNode& node) {
  check(node.integer("transA", 0) == 0, ExitCode::usage, "its transA is not supported");
  const ImportedValue* weight = constant(node, 1);
  check(weight != nullptr, ExitCode::usage, "it has no weights");
  ImportedValue result = linear(node, *weight->constant, node.integer("transB", 0) == 0, node.real("alpha", 1));
  if (node.input(2).empty()) return result;
  PendingLayer& layer = *result.pending;
  const std::int64_t elements = constant(node, 2)->constant->elements();
  layer.bias = numbers(node, 2, elements == 1 ? 1 : layer.outputs);
  layer.bias.resize(static_cast<std::size_t>(layer.outputs), layer.bias[0]);
  const float beta = node.real("beta", 1);
  for (float& each : layer.bias) each *= beta;
  return result;
}

ImportedValue Importer::matmul(const OnnxNode& node) {
  const ImportedValue* weight = constant(node, 1);
  check(weight != nullptr, ExitCode::usage, "it has no weights");
  return linear(node, *weight->constant, /*transpose=*/true, 1);
}

ImportedValue Importer::add(const OnnxNode& node) {
  for (const std::size_t input : {std::size_t{0}, std::size_t{1}}) {
    if (value(node, input).constant != nullptr) return add_bias(node, input);
  }
  const ImportedValue a = activation(node, 0);
  const ImportedValue& b = activation(node, 1);
  check(a.rank == b.rank && a.channels_last == b.channels_last && a.unflattened == b.unflattened && !a.padding.any() &&
            !b.padding.any(),
        ExitCode::usage, "its inputs are of different kinds");
  check(a.layer != b.layer, ExitCode::usage, "a sum of a value with itself is not supported");
  return behind(a, result_.graph.add(a.layer, b.layer));
}

std::int64_t Importer::channels_of(const ImportedValue& x) const {
  if (x.pending == nullptr) return result_.graph.shape(x.layer).channels;
  return x.pending->linear ? x.pending->outputs : x.pending->conv.channels;
}

std::vector<float> Importer::channel_numbers(const OnnxNode& node, std::size_t constant_input, const ImportedValue& x) {
  const std::int64_t channels = channels_of(x);
  // As numpy aligns shapes: [channels] where they come last, [channels, 1, 1] for other images, with ones in front.
  std::vector<std::int64_t> shape = constant(node, constant_input)->constant->shape;
  while (!shape.empty() && shape.front() == 1) shape.erase(shape.begin());
  const std::vector<std::int64_t> expected =
      x.rank == 2 || x.channels_last ? std::vector<std::int64_t>{channels} : std::vector<std::int64_t>{channels, 1, 1};
  check(shape == expected || shape.empty(), ExitCode::usage, "its constant is not one number a channel");
  std::vector<float> values = numbers(node, constant_input, shape.empty() ? 1 : channels);
  values.resize(static_cast<std::size_t>(channels), values[0]);
  if (x.unflattened.channels > 0) reorder_columns(values, 1, x.unflattened);
  return values;
}

ImportedValue Importer::add_bias(const OnnxNode& node, std::size_t constant_input) {
  const std::size_t input = 1 - constant_input;
  const ImportedValue& x = value(node, input);
  check(x.pending != nullptr && only_reader(node, input), ExitCode::usage,
        "the sum with a constant is supported right behind a Conv, Gemm, MatMul or Mul only");
  std::vector<float>& bias = x.pending->bias;
  const std::vector<float> more = channel_numbers(node, constant_input, x);
  bias.resize(more.size(), 0.0F);
  for (std::size_t c = 0; c < more.size(); ++c) bias[c] += more[c];
  return x;
}

// Exporters for inference leave such scales and shifts of batch norm: into the layer before, or a layer of their own.
ImportedValue Importer::scale(const OnnxNode& node) {
  const std::size_t constant_input = value(node, 0).constant != nullptr ? 0 : 1;
  const std::size_t input = 1 - constant_input;
  const OnnxTensor* factors = value(node, constant_input).constant.get();
  check(factors != nullptr, ExitCode::usage, "only the product with a constant is supported");
  if (value(node, input).pending != nullptr && only_reader(node, input)) {
    const ImportedValue& x = value(node, input);
    PendingLayer& layer = *x.pending;
    const std::vector<float> factor = channel_numbers(node, constant_input, x);
    const std::size_t row = layer.weight.size() / factor.size();
    for (std::size_t i = 0; i < layer.weight.size(); ++i) layer.weight[i] *= factor[i / row];
    for (std::size_t c = 0; c < layer.bias.size(); ++c) layer.bias[c] *= factor[c];
    return x;
  }
  const ImportedValue& x = activation(node, input);
  check(!x.padding.any(), ExitCode::usage, "a Pad is supported right before a convolution or pooling only");
  check(!factors->shape.empty() && factors->elements() == channels_of(x), ExitCode::usage,
        "it scales by something other than one number a channel; leave the scaling of pixels out of the model, "
        "--normalize does that");
  ImportedValue result = x;
  result.pending = std::make_shared<PendingLayer>();
  PendingLayer& layer = *result.pending;
  layer.node = &node;
  layer.from = x.layer;
  layer.weight_name = value(node, constant_input).origin;
  layer.weight = channel_numbers(node, constant_input, x);
  layer.conv.channels = layer.conv.groups = channels_of(x);
  return result;
}

ImportedValue Importer::batch_norm(const OnnxNode& node) {
  const ImportedValue& x = activation(node, 0);
  check(!x.channels_last && x.unflattened.channels == 0 && !x.padding.any(), ExitCode::usage,
        "its input does not have the channels second");
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
  // ONNX's is the part that stays.
  layer.momentum = 1 - node.real("momentum", 0.9F);
  check(layer.epsilon > 0 && layer.epsilon < 1 && layer.momentum >= 0 && layer.momentum <= 1, ExitCode::usage,
        "its epsilon or momentum is out of range");
  ImportedValue result = behind(x, result_.graph.batch_norm(names_.choose(scale->origin, node), x.layer, layer));
  keep(weight, result_.parameters);
  keep(bias, result_.parameters);
  keep(mean, result_.statistics);
  keep(variance, result_.statistics);
  return result;
}

ImportedValue Importer::activate(const OnnxNode& node, Activation kind) {
  const ImportedValue& x = activation(node, 0);
  check(!x.padding.any(), ExitCode::usage, "a Pad is supported right before a convolution or pooling only");
  return behind(x, result_.graph.activation(x.layer, kind));
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

ImportedValue Importer::pool(const OnnxNode& node, PoolLayer layer, const WindowSpec& window) {
  const ImportedValue& x = image(node, 0, /*padding=*/true);
  const Padding padding = window.padding + x.padding;
  check(std::max(padding.top, padding.bottom + window.overhang_bottom) < window.height &&
            std::max(padding.left, padding.right + window.overhang_right) < window.width,
        ExitCode::usage, "its padding is as large as its {}x{} window", window.height, window.width);
  layer.window = window.height;
  layer.window_w = window.width == window.height ? 0 : window.width;
  layer.stride = window.stride;
  layer.padding_top = padding.top;
  layer.padding_left = padding.left;
  layer.padding_bottom = padding.bottom + window.overhang_bottom;
  layer.padding_right = padding.right + window.overhang_right;
  return image_of(result_.graph.pool(x.layer, layer));
}

namespace {

WindowSpec pooling_window(const OnnxNode& node, const Shape& in, const Padding& padding) {
  const std::vector<std::int64_t> kernel = node.integers("kernel_shape", {});
  check(kernel.size() == 2, ExitCode::usage, "its kernel_shape is not height and width");
  return window_of(node, kernel[0], kernel[1], in.height + padding.top + padding.bottom,
                   in.width + padding.left + padding.right);
}

}  // namespace

ImportedValue Importer::max_pool(const OnnxNode& node) {
  const ImportedValue& x = image(node, 0, /*padding=*/true);
  check(!x.padding.any() || non_negative(x.layer), ExitCode::usage,
        "zeros from a Pad could win its maximum; that is supported behind a ReLU only");
  PoolLayer layer;
  layer.kind = PoolSpec::Kind::maximum;
  return pool(node, layer, pooling_window(node, result_.graph.shape(x.layer), x.padding));
}

ImportedValue Importer::average_pool(const OnnxNode& node) {
  const ImportedValue& x = image(node, 0, /*padding=*/true);
  const WindowSpec window = pooling_window(node, result_.graph.shape(x.layer), x.padding);
  const bool counts = node.integer("count_include_pad", 0) != 0;
  // Zeros of a Pad are part of the image, those of the padding count on request, and what a window has beyond both
  // never counts. Our windows count all or nothing.
  const bool own = window.padding.any();
  const bool with = x.padding.any() || (own && counts);
  const bool without = window.overhangs() || (own && !counts);
  check(!with || !without, ExitCode::usage,
        "zeros that count and zeros that do not, in one average, are not supported");
  PoolLayer layer;
  layer.kind = PoolSpec::Kind::average;
  layer.count_padding = !without;
  return pool(node, layer, window);
}

ImportedValue Importer::global_average_pool(const OnnxNode& node) {
  return image_of(result_.graph.global_average_pool(image(node, 0).layer));
}

ImportedValue Importer::global_max_pool(const OnnxNode& node) {
  const int from = image(node, 0).layer;
  const Shape in = result_.graph.shape(from);
  PoolLayer layer;
  layer.kind = PoolSpec::Kind::maximum;
  layer.window = in.height;
  layer.window_w = in.width;
  layer.stride = 1;
  return image_of(result_.graph.pool(from, layer));
}

ImportedValue Importer::lrn(const OnnxNode& node) {
  LrnLayer layer;
  layer.size = node.integer("size", 0);
  layer.alpha = node.real("alpha", 1e-4F);
  layer.beta = node.real("beta", 0.75F);
  layer.k = node.real("bias", 1);
  constexpr std::int64_t kLargest = 1 << 16;
  // ONNX and PyTorch put the middle of an even number of channels differently.
  check(layer.size >= 1 && layer.size <= kLargest && layer.size % 2 == 1, ExitCode::usage,
        "it goes over {} channels; an odd number is supported", layer.size);
  check(std::isfinite(layer.alpha) && std::isfinite(layer.beta) && layer.alpha >= 0 && layer.k > 0, ExitCode::usage,
        "its alpha, beta or bias is out of range");
  return image_of(result_.graph.lrn(image(node, 0).layer, layer));
}

ImportedValue Importer::dropout(const OnnxNode& node) {
  const ImportedValue& x = activation(node, 0);
  check(!x.padding.any(), ExitCode::usage, "a Pad is supported right before a convolution or pooling only");
  const float rate = constant(node, 1) != nullptr ? numbers(node, 1, 1)[0] : node.real("ratio", 0.5F);
  if (rate == 0) return x;
  return behind(x, result_.graph.dropout(x.layer, rate));
}

}  // namespace ddp
