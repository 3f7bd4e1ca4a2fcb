// Nodes of an ONNX model that only move or rename elements.
#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "onnx/importer/importer.h"
#include "onnx/patterns/fold.h"

namespace ddp {
namespace {

using Extents = std::vector<std::int64_t>;

// Whether the order of channels and pixels does not matter.
bool one_order(const Shape& shape) { return shape.channels == 1 || shape.height * shape.width == 1; }

const OnnxTensor* tensor_of(const ImportedValue* value) { return value == nullptr ? nullptr : value->constant.get(); }

}  // namespace

ImportedValue Importer::flattened(const ImportedValue& from) {
  if (from.rank == 2) return from;
  const bool last = from.channels_last && !one_order(result_.graph.shape(from.layer));
  ImportedValue value;
  value.rank = 2;
  value.layer = result_.graph.flatten(from.layer, last);
  return value;
}

ImportedValue Importer::flatten(const OnnxNode& node) {
  const ImportedValue& x = activation(node, 0);
  check(!x.padding.any(), ExitCode::usage, "a Pad is supported only directly before a convolution or pooling");
  check(normal_axes({node.integer("axis", 1)}, x.rank)[0] == 1, ExitCode::usage,
        "its axis is {}; 1, all but the samples, is supported", node.integer("axis", 1));
  return flattened(x);
}

ImportedValue Importer::reshape(const OnnxNode& node) {
  ImportedValue x = activation(node, 0);
  check(!x.padding.any(), ExitCode::usage, "a Pad is supported only directly before a convolution or pooling");
  const OnnxTensor* wanted = tensor_of(constant(node, 1));
  check(wanted != nullptr && wanted->type == OnnxTensor::Type::integer, ExitCode::usage, "it has no shape");
  Extents target = wanted->integers;
  const Extents from = extents(x);
  const bool takes_over = node.integer("allowzero", 0) == 0;
  check(!target.empty(), ExitCode::usage, "it produces a single number");
  // Compares the elements per sample; the number of samples is explicit, copied (0) or inferred (-1).
  const std::int64_t first = std::exchange(target[0], 1);
  const bool left_over = first == -1;
  check(left_over || is_batch(first) || (first == 0 && takes_over), ExitCode::usage,
        "it mixes samples; their number must stay the first extent");
  Extents sample(from.begin(), from.end());
  sample[0] = 1;
  check(!left_over || std::find(target.begin(), target.end(), -1) == target.end(), ExitCode::usage,
        "it infers two extents");
  target = reshaped(sample, std::move(target), !takes_over);
  const Shape shape = result_.graph.shape(x.layer);
  std::int64_t elements = 1;
  for (const std::int64_t extent : target) {
    check(!__builtin_mul_overflow(elements, extent, &elements), ExitCode::usage, "its shape is impossible");
  }
  check(elements == shape.elements(), ExitCode::usage, "it reshapes {} elements per sample to {}", elements,
        shape.elements());
  if (target == sample) return x;
  if (x.rank == 5) {
    check(x.shuffled && target == Extents{1, shape.channels, shape.height, shape.width}, ExitCode::usage,
          "it does not join the groups of a shuffle of channels");
    ImportedValue value;
    value.layer = result_.graph.channel_shuffle(x.layer, x.groups);
    return value;
  }
  if (target.size() == 5) return grouped(x, target);
  if (target.size() == 2) return flattened(x);
  ImportedValue value = x;
  value.rank = 4;
  const bool first_fits = target == Extents{1, shape.channels, shape.height, shape.width};
  const bool last_fits = target == Extents{1, shape.height, shape.width, shape.channels};
  check((first_fits || last_fits) && one_order(shape), ExitCode::usage,
        "it reshapes to another image; only [N, -1] is supported");
  value.channels_last = !first_fits;
  return value;
}

ImportedValue Importer::squeeze(const OnnxNode& node) {
  const ImportedValue& x = activation(node, 0);
  const Shape& shape = result_.graph.shape(x.layer);
  const Extents axes = normal_axes(integers_of(node, "axes", tensor_of(constant(node, 1)), {}), x.rank);
  const Extents pixels = x.channels_last ? Extents{1, 2} : Extents{2, 3};
  check(x.rank == 4 && !x.padding.any() && shape.height == 1 && shape.width == 1 && axes == pixels, ExitCode::usage,
        "only height and width of 1 can be removed");
  return flattened(x);
}

// A vector becomes an image of one pixel, in one or two steps.
ImportedValue Importer::unsqueeze(const OnnxNode& node) {
  ImportedValue x = activation(node, 0);
  const Extents given = integers_of(node, "axes", tensor_of(constant(node, 1)), {});
  const auto count = static_cast<std::int64_t>(given.size());
  const Extents axes = normal_axes(given, x.rank + count);
  const bool behind = !axes.empty() && axes.front() >= 2;
  check((x.rank == 2 || x.rank == 3) && x.rank + count <= 4 && behind, ExitCode::usage,
        "only a vector can be extended, by a height and a width of 1");
  x.rank += static_cast<int>(count);
  return x;
}

ImportedValue Importer::transpose(const OnnxNode& node) {
  const ImportedValue& x = activation(node, 0);
  const Extents permutation = node.integers("perm", {});
  if (x.rank == 5) {
    check(permutation == Extents{0, 2, 1, 3, 4} && !x.shuffled, ExitCode::usage,
          "five extents can only be permuted by [0, 2, 1, 3, 4], a shuffle of channels");
    ImportedValue value = x;
    value.shuffled = true;
    return value;
  }
  if (permutation == (x.rank == 2 ? Extents{0, 1} : Extents{0, 1, 2, 3})) return x;
  check(x.rank == 4 && permutation == (x.channels_last ? Extents{0, 3, 1, 2} : Extents{0, 2, 3, 1}), ExitCode::usage,
        "only the order of channels and pixels, [N, C, H, W] or [N, H, W, C], can be changed");
  ImportedValue value = x;
  value.channels_last = !x.channels_last;
  return value;
}

// Over all pixels of each channel.
ImportedValue Importer::reduce(const OnnxNode& node, PoolSpec::Kind kind, bool sums) {
  const ImportedValue x = activation(node, 0);
  check(x.rank == 4 && !x.padding.any(), ExitCode::usage, "its input is not an image");
  const Extents axes = normal_axes(integers_of(node, "axes", tensor_of(constant(node, 1)), {}), 4);
  check(axes == (x.channels_last ? Extents{1, 2} : Extents{2, 3}), ExitCode::usage,
        "only height and width together are supported");
  const Shape in = result_.graph.shape(x.layer);
  ImportedValue value = x;
  value.layer = result_.graph.pool(x.layer, {.kind = kind, .window = {.height = in.height, .width = in.width}});
  if (sums) {
    // The mean times the number of pixels.
    value.pending = std::make_shared<PendingLayer>();
    value.pending->kind = PendingLayer::Kind::affine;
    value.pending->node = &node;
    value.pending->from = value.layer;
    value.pending->channels = in.channels;
    value.pending->weight.assign(static_cast<std::size_t>(in.channels), static_cast<float>(in.height * in.width));
    value.pending->weight_fixed = true;
    build(value);
  }
  return node.integer("keepdims", 1) != 0 ? value : flattened(value);
}

ImportedValue Importer::pad(const OnnxNode& node) {
  const ImportedValue x = activation(node, 0);
  check(x.rank == 4, ExitCode::usage, "its input is not an image");
  const Padding2d padding = pads_of(node, x);
  ImportedValue value = x;
  const std::string mode = node.text("mode", "constant");
  if (mode == "reflect" || mode == "edge") {
    check(!x.padding.any(), ExitCode::usage,
          "a Pad with zeros is supported right before a convolution or pooling only");
    value.layer = result_.graph.pad(x.layer, {padding, mode == "edge" ? PadMode::replicate : PadMode::reflect});
    return value;
  }
  check(mode == "constant", ExitCode::usage, "its mode is '{}'; constant, reflect and edge are supported", mode);
  const float with = constant(node, 2) != nullptr ? numbers(node, 2, 1)[0] : node.real("value", 0);
  check(with == 0, ExitCode::usage, "it pads with {}; only padding with zeros is supported", with);
  value.padding = x.padding + padding;
  return value;
}

Padding2d Importer::pads_of(const OnnxNode& node, const ImportedValue& x) {
  Extents axes = {0, 1, 2, 3};
  if (constant(node, 3) != nullptr) axes = integers_of(node, "axes", tensor_of(constant(node, 3)), {});
  const Extents pads = integers_of(node, "pads", tensor_of(constant(node, 1)), {});
  check(pads.size() == 2 * axes.size(), ExitCode::usage, "its pads do not match its dimensions");
  std::array<std::int64_t, 4> before{};
  std::array<std::int64_t, 4> after{};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    constexpr std::int64_t kLargest = 1 << 16;
    const auto axis = static_cast<std::size_t>(normal_axes({axes[i]}, 4)[0]);
    before[axis] = pads[i];
    after[axis] = pads[i + axes.size()];
    check(std::min(before[axis], after[axis]) >= 0 && std::max(before[axis], after[axis]) <= kLargest, ExitCode::usage,
          "its padding is negative or too large");
  }
  const std::size_t rows = x.channels_last ? 1 : 2;
  const std::size_t channels = x.channels_last ? 3 : 1;
  check(before[0] + after[0] + before[channels] + after[channels] == 0, ExitCode::usage,
        "only height and width can be padded");
  return {before[rows], before[rows + 1], after[rows], after[rows + 1]};
}

ImportedValue Importer::softmax(const OnnxNode& node) {
  ImportedValue value = activation(node, 0);
  const Shape& shape = result_.graph.shape(value.layer);
  // Before opset 13, an axis of 1 included all following axes.
  const std::int64_t axis = normal_axes({node.integer("axis", model_.opset < 13 ? 1 : -1)}, value.rank)[0];
  const std::int64_t channels = value.rank == 4 && value.channels_last ? 3 : 1;
  const bool all = model_.opset < 13 && axis + 1 < value.rank && shape.height * shape.width > 1;
  check(axis == channels && !all, ExitCode::usage, "it is not over the classes or channels");
  // At the end if what follows only passes values on.
  std::string last = node.outputs[0];
  const auto passes = [&] {
    const auto& readers = readers_[last];
    return readers.size() == 1 && (readers[0]->type == "Identity" || readers[0]->type == "Cast");
  };
  while (passes()) last = readers_[last][0]->outputs[0];
  if (node.type == "Softmax" && last != model_.outputs[0].name) {
    value.layer = result_.graph.apply(value.layer, SoftmaxSpec{});
    return value;
  }
  check(shape.height * shape.width == 1, ExitCode::usage, "it is not over the classes");
  log_info("the {} at the end of the model is dropped: the loss includes it", node.type);
  value.softmax = true;
  return value;
}

ImportedValue Importer::identity(const OnnxNode& node) {
  ImportedValue& x = value(node, 0);
  build(x);
  return x;
}

ImportedValue Importer::cast(const OnnxNode& node) {
  // TensorProto.DataType: FLOAT, FLOAT16, DOUBLE, BFLOAT16; all are float32 here.
  constexpr std::array<std::int64_t, 4> reals = {1, 10, 11, 16};
  check(std::find(reals.begin(), reals.end(), node.integer("to", 0)) != reals.end(), ExitCode::usage,
        "it does not produce real numbers");
  return identity(node);
}

ImportedValue Importer::cast_like(const OnnxNode& node) {
  const ImportedValue& from = value(node, 0);
  const ImportedValue& like = value(node, 1);
  const bool real = like.constant == nullptr || like.constant->type == OnnxTensor::Type::real;
  check(real, ExitCode::usage, "it does not produce real numbers");
  if (from.constant == nullptr) return identity(node);
  check(from.constant->type == OnnxTensor::Type::real, ExitCode::usage, "it converts integers to real numbers");
  return from;
}

ImportedValue Importer::shape(const OnnxNode& node) {
  ImportedValue value;
  value.constant = std::make_shared<OnnxTensor>(shape_part(node, extents(activation(node, 0))));
  value.origin = node.outputs[0];
  return value;
}

}  // namespace ddp
