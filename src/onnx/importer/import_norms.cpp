// Layer, instance and group normalisation of an ONNX model.
#include <algorithm>

#include "base/error.h"
#include "onnx/importer/importer.h"
#include "onnx/patterns/fold.h"

namespace ddp {
namespace {

bool all_are(const std::vector<float>& values, float wanted) {
  return std::all_of(values.begin(), values.end(), [wanted](float v) { return v == wanted; });
}

}  // namespace

// Adds the layer with the scale and bias of inputs 1 and 2, of which either may be missing.
ImportedValue Importer::sample_norm(const OnnxNode& node, const ImportedValue& from, SampleNormLayer layer) {
  check(!from.padding.any(), ExitCode::usage, "a Pad is supported only directly before a convolution or pooling");
  const std::int64_t channels = result_.graph.shape(from.layer).channels;
  layer.epsilon = node.real("epsilon", 1e-5F);
  check(layer.epsilon > 0 && layer.epsilon < 1, ExitCode::usage, "its epsilon is {}; it must be between 0 and 1",
        layer.epsilon);
  const auto given = [&](std::size_t input, float otherwise) {
    if (constant(node, input) != nullptr) return numbers(node, input, channels);
    return std::vector<float>(static_cast<std::size_t>(channels), otherwise);
  };
  const auto origin = [&](std::size_t input) {
    const ImportedValue* found = constant(node, input);
    return found == nullptr ? std::string() : found->origin;
  };
  const std::vector<float> weight = given(1, 1);
  const std::vector<float> bias = given(2, 0);
  // PyTorch's affine=False and bias=False: ones and zeros that are no parameters of the module.
  layer.fixed_weight = is_fixed(constant(node, 1), weight, 1);
  layer.fixed_bias = is_fixed(constant(node, 2), bias, 0);
  const std::string name = names_.choose(origin(1), node);
  ImportedValue result = from;
  result.layer = result_.graph.sample_norm(name, from.layer, layer);
  if (!layer.fixed_weight) rename(name + ".weight", given_name(origin(1)), {channels});
  if (!layer.fixed_bias) rename(name + ".bias", given_name(origin(2)), {channels});
  for (const std::size_t input : {std::size_t{1}, std::size_t{2}}) {
    const bool fixed = input == 1 ? layer.fixed_weight : layer.fixed_bias;
    if (fixed && constant(node, input) != nullptr) keep_constant(*constant(node, input), given_name(origin(input)));
  }
  keep(weight, result_.parameters);
  keep(bias, result_.parameters);
  return result;
}

ImportedValue Importer::layer_norm(const OnnxNode& node) {
  const ImportedValue& x = activation(node, 0);
  const std::int64_t axis = normal_axes({node.integer("axis", -1)}, x.rank)[0];
  const Shape& shape = result_.graph.shape(x.layer);
  check(axis == channel_axis(x) && (axis == x.rank - 1 || shape.height * shape.width == 1), ExitCode::usage,
        "only the channels can be normalised, as the last axis; its axes are those from {} on", axis);
  check(node.integer("stash_type", 1) == 1, ExitCode::usage, "its stash_type is not float");
  return sample_norm(node, x, {.over = NormOver::channels});
}

ImportedValue Importer::instance_norm(const OnnxNode& node) {
  const ImportedValue& x = image(node, 0);
  return sample_norm(node, x, {.over = NormOver::groups, .groups = result_.graph.shape(x.layer).channels});
}

ImportedValue Importer::group_norm(const OnnxNode& node) {
  const ImportedValue& x = activation(node, 0);
  check(!x.channels_last, ExitCode::usage, "its input has the channels last, [N, H, W, C]");
  SampleNormLayer layer{.over = NormOver::groups, .groups = node.integer("num_groups", 0)};
  const std::int64_t channels = result_.graph.shape(x.layer).channels;
  if (const ImportedValue* reshape = constant(node, 3); reshape != nullptr) {
    // Joined from others (norms.h): the shape with groups, and the scale and bias of the instance normalisation.
    const std::vector<std::int64_t>& target = reshape->constant->integers;
    check(target.size() == 3 && (target[0] == 0 || is_batch(target[0])), ExitCode::usage,
          "its values are not reshaped to [N, groups, -1]");
    layer.groups = target[1];
    check(layer.groups > 0, ExitCode::usage, "it has {} groups", layer.groups);
    check(all_are(numbers(node, 4, layer.groups), 1) && all_are(numbers(node, 5, layer.groups), 0), ExitCode::usage,
          "its groups have scales or biases of their own");
  }
  check(layer.groups > 0 && channels % layer.groups == 0, ExitCode::usage,
        "{} channels cannot be normalised in {} groups", channels, layer.groups);
  const ImportedValue* scale = constant(node, 1);
  check(scale == nullptr || scale->constant->elements() == channels, ExitCode::usage,
        "its scale has {} elements, {} are needed, one for each channel; opset 18 has one for each group, export with "
        "opset 21 or below 18",
        scale == nullptr ? 0 : scale->constant->elements(), channels);
  return sample_norm(node, x, layer);
}

}  // namespace ddp
