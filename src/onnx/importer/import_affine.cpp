// Sums and products with constants in an ONNX model: one number per channel, or one for all.
//
// A factor or addend becomes a separate layer and is never folded into weights, which would change training and the
// exported weights. Constants remain fixed; parameters of the module are trained under their names (import_parameters.cpp).
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "onnx/importer/importer.h"

namespace ddp {
namespace {

constexpr const char* kPadFirst = "a Pad is supported only directly before a convolution or pooling";

ChannelNumbers all(std::int64_t channels, float value) {
  ChannelNumbers numbers;
  numbers.values.assign(static_cast<std::size_t>(channels), value);
  return numbers;
}

}  // namespace

std::int64_t Importer::channels_of(const ImportedValue& x) const {
  return x.pending == nullptr ? result_.graph.shape(x.layer).channels : x.pending->channels;
}

std::size_t Importer::constant_side(const OnnxNode& node, const char* what) {
  for (const std::size_t input : {std::size_t{0}, std::size_t{1}}) {
    if (value(node, input).constant != nullptr) return input;
  }
  throw Error(ExitCode::usage, fmt::format("only the {} a constant is supported, not of two values of the network "
                                           "(as in nn.SiLU, gates, and attention)",
                                           what));
}

ChannelNumbers Importer::channel_numbers(const OnnxNode& node, std::size_t constant_input, bool may_train) {
  const ImportedValue& x = value(node, 1 - constant_input);
  check(x.constant == nullptr, ExitCode::usage, "both of its inputs are constants of unsupported kinds");
  check(!x.softmax, ExitCode::usage, "it reads a Softmax, which is supported only at the end");
  check(!x.padding.any(), ExitCode::usage, "{}", kPadFirst);
  const std::int64_t channels = channels_of(x);
  const ImportedValue& constant = value(node, constant_input);
  ChannelNumbers result;
  result.shape = constant.constant->shape;
  result.origin = constant.origin;
  result.name = given_name(constant.origin);
  // By numpy's broadcasting: [channels] if channels come last, [channels, 1, 1] for other images, with leading ones.
  std::vector<std::int64_t> shape = result.shape;
  while (!shape.empty() && shape.front() == 1) shape.erase(shape.begin());
  const bool last = x.rank == 2 || x.channels_last;
  const std::vector<std::int64_t> expected =
      last ? std::vector<std::int64_t>{channels} : std::vector<std::int64_t>{channels, 1, 1};
  check(shape == expected || shape.empty(), ExitCode::usage,
        "its constant is neither one number per channel nor one for all");
  const bool one = shape.empty() && channels > 1;
  result.values = numbers(node, constant_input, shape.empty() ? 1 : channels);
  result.values.resize(static_cast<std::size_t>(channels), result.values[0]);
  result.fixed = !is_trained(constant, may_train, one);
  if (result.fixed) keep_constant(constant, result.name);
  return result;
}

ImportedValue Importer::affine(const OnnxNode& node, std::size_t input, const ChannelNumbers& scale,
                               const ChannelNumbers* shift) {
  ImportedValue& x = value(node, input);
  const bool fixed = scale.fixed && (shift == nullptr || shift->fixed);
  if (x.pending != nullptr && x.pending->kind == PendingLayer::Kind::affine && x.pending->weight_fixed &&
      (x.pending->bias.empty() || x.pending->bias_fixed) && fixed && only_reader(node, input)) {
    // Combines affine expressions: (x - mean) / deviation is one layer.
    PendingLayer& layer = *x.pending;
    if (shift != nullptr || !layer.bias.empty()) layer.bias.resize(layer.weight.size(), 0.0F);
    layer.bias_fixed = true;
    for (std::size_t c = 0; c < layer.weight.size(); ++c) {
      layer.weight[c] *= scale.values[c];
      if (layer.bias.empty()) continue;
      layer.bias[c] = layer.bias[c] * scale.values[c] + (shift == nullptr ? 0.0F : shift->values[c]);
    }
    return x;
  }
  ImportedValue result = activation(node, input);
  result.pending = std::make_shared<PendingLayer>();
  PendingLayer& layer = *result.pending;
  layer.kind = PendingLayer::Kind::affine;
  layer.node = &node;
  layer.from = result.layer;
  layer.channels = static_cast<std::int64_t>(scale.values.size());
  layer.weight = scale.values;
  layer.weight_name = scale.fixed && shift != nullptr ? shift->origin : scale.origin;
  layer.weight_fixed = scale.fixed;
  layer.kept_name = scale.fixed ? "" : scale.name;
  layer.weight_shape = scale.shape;
  if (shift == nullptr) return result;
  layer.bias = shift->values;
  layer.bias_fixed = shift->fixed;
  layer.bias_name = shift->fixed ? "" : shift->name;
  layer.bias_shape = shift->shape;
  return result;
}

ImportedValue Importer::add_constant(const OnnxNode& node, std::size_t constant_input) {
  const std::size_t input = 1 - constant_input;
  const ChannelNumbers shift = channel_numbers(node, constant_input, /*may_train=*/true);
  ImportedValue& x = value(node, input);
  // A trained addend becomes the bias of the preceding layer if that has none yet.
  if (x.pending != nullptr && x.pending->bias.empty() && !shift.fixed && only_reader(node, input)) {
    x.pending->bias = shift.values;
    x.pending->bias_name = shift.name;
    x.pending->bias_shape = shift.shape;
    return x;
  }
  return affine(node, input, all(channels_of(x), 1), &shift);
}

ImportedValue Importer::sub(const OnnxNode& node) {
  const std::size_t side = constant_side(node, "difference with");
  ChannelNumbers shift = channel_numbers(node, side, /*may_train=*/false);
  if (side == 1) {
    for (float& each : shift.values) each = -each;
  }
  return affine(node, 1 - side, all(static_cast<std::int64_t>(shift.values.size()), side == 1 ? 1.0F : -1.0F), &shift);
}

ImportedValue Importer::mul(const OnnxNode& node) {
  if (value(node, 0).constant == nullptr && value(node, 1).constant == nullptr) return product(node);
  const std::size_t side = constant_side(node, "product with");
  return affine(node, 1 - side, channel_numbers(node, side, /*may_train=*/true), nullptr);
}

ImportedValue Importer::div(const OnnxNode& node) {
  const std::size_t side = constant_side(node, "quotient by");
  check(side == 1, ExitCode::usage, "only the quotient by a constant is supported");
  ChannelNumbers scale = channel_numbers(node, side, /*may_train=*/false);
  for (float& each : scale.values) {
    check(each != 0, ExitCode::usage, "it divides by 0");
    each = 1 / each;
  }
  return affine(node, 0, scale, nullptr);
}

}  // namespace ddp
