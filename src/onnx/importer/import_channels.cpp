// Products of two activations, and nodes of an ONNX model that join, divide or shuffle channels.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "onnx/importer/importer.h"
#include "onnx/patterns/fold.h"

namespace ddp {
namespace {

using Extents = std::vector<std::int64_t>;

constexpr const char* kOnlyChannels = "only the channels can be {}; its axis is {}";

}  // namespace

// The axis of the channels.
std::int64_t Importer::channel_axis(const ImportedValue& x) { return x.rank == 4 && x.channels_last ? 3 : 1; }

ImportedValue Importer::product(const OnnxNode& node) {
  ImportedValue a = activation(node, 0);
  ImportedValue b = activation(node, 1);
  check(a.rank == b.rank && a.channels_last == b.channels_last && !a.padding.any() && !b.padding.any(), ExitCode::usage,
        "its inputs are of different kinds");
  if (result_.graph.shape(a.layer).elements() < result_.graph.shape(b.layer).elements()) std::swap(a, b);
  ImportedValue value = a;
  value.layer = result_.graph.product(a.layer, b.layer);
  return value;
}

ImportedValue Importer::concat(const OnnxNode& node) {
  std::vector<int> layers;
  ImportedValue first;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const ImportedValue& x = activation(node, i);
    if (i == 0) first = x;
    check(x.rank == first.rank && x.channels_last == first.channels_last && !x.padding.any(), ExitCode::usage,
          "its inputs are of different kinds");
    layers.push_back(x.layer);
  }
  check(!layers.empty(), ExitCode::usage, "it has no inputs");
  const std::int64_t axis = normal_axes({node.integer("axis", 1)}, first.rank)[0];
  check(axis == channel_axis(first), ExitCode::usage, kOnlyChannels, "joined", axis);
  first.layer = result_.graph.concat(layers);
  return first;
}

// Channels `begin` to `end` of x; ends beyond the channels are the last one.
ImportedValue Importer::part(const ImportedValue& x, std::int64_t begin, std::int64_t end) {
  const std::int64_t channels = result_.graph.shape(x.layer).channels;
  const auto inside = [&](std::int64_t place) {
    return std::clamp<std::int64_t>(place < 0 ? place + channels : place, 0, channels);
  };
  begin = inside(begin);
  end = inside(end);
  check(begin < end, ExitCode::usage, "it selects no channels");
  ImportedValue value = x;
  if (end - begin < channels)
    value.layer = result_.graph.channel_select(x.layer, {.first = begin, .count = end - begin});
  return value;
}

std::vector<std::pair<std::int64_t, std::int64_t>> Importer::parts_of(const OnnxNode& node, const ImportedValue& x,
                                                                      std::int64_t parts) {
  const std::int64_t channels = result_.graph.shape(x.layer).channels;
  const std::int64_t axis = normal_axes({node.integer("axis", 0)}, x.rank)[0];
  check(axis == channel_axis(x) && !x.padding.any(), ExitCode::usage, kOnlyChannels, "split", axis);
  const ImportedValue* given = constant(node, 1);
  const OnnxTensor* tensor = given == nullptr ? nullptr : given->constant.get();
  Extents sizes = integers_of(node, "split", tensor, {});
  // One size for all, or as many parts as there are outputs; the last one may be smaller.
  const bool one_size = parts == 0 && sizes.size() == 1 && tensor != nullptr && tensor->shape.empty();
  if (one_size || (sizes.empty() && parts > 0)) {
    const std::int64_t each = one_size ? sizes[0] : (channels + parts - 1) / parts;
    sizes.clear();
    for (std::int64_t begin = 0; begin < channels && each > 0; begin += each) {
      sizes.push_back(std::min(each, channels - begin));
    }
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    check(size > 0 && size <= channels - begin, ExitCode::usage, "its parts do not divide {} channels", channels);
    ranges.emplace_back(begin, begin + size);
    begin += size;
  }
  check(begin == channels && (parts == 0 || parts == static_cast<std::int64_t>(ranges.size())), ExitCode::usage,
        "its parts do not divide {} channels", channels);
  return ranges;
}

ImportedValue Importer::split(const OnnxNode& node) {
  const ImportedValue x = activation(node, 0);
  const auto ranges = parts_of(node, x, static_cast<std::int64_t>(node.outputs.size()));
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    // Parts that nothing reads are not computed.
    if (readers_.contains(node.outputs[i])) values_[node.outputs[i]] = part(x, ranges[i].first, ranges[i].second);
  }
  return readers_.contains(node.outputs[0]) ? part(x, ranges[0].first, ranges[0].second) : x;
}

// PyTorch's newer exporter writes Tensor.chunk() as a list and its elements.
ImportedValue Importer::split_to_sequence(const OnnxNode& node) {
  ImportedValue value = activation(node, 0);
  check(node.integer("keepdims", 1) != 0, ExitCode::usage, "its keepdims is 0");
  value.sequence = parts_of(node, value, 0);
  return value;
}

ImportedValue Importer::sequence_at(const OnnxNode& node) {
  ImportedValue x = activation(node, 0);
  const ImportedValue* given = constant(node, 1);
  const Extents index = integers_of(node, "position", given == nullptr ? nullptr : given->constant.get(), {});
  const auto count = static_cast<std::int64_t>(x.sequence.size());
  check(index.size() == 1 && index[0] >= -count && index[0] < count, ExitCode::usage,
        "it does not select one of {} parts", count);
  const auto [begin, end] = std::exchange(x.sequence, {})[static_cast<std::size_t>((index[0] + count) % count)];
  return part(x, begin, end);
}

ImportedValue Importer::slice(const OnnxNode& node) {
  const ImportedValue x = activation(node, 0);
  const auto list = [&](const char* attribute, std::size_t input, const Extents& otherwise) {
    const ImportedValue* given = constant(node, input);
    return integers_of(node, attribute, given == nullptr ? nullptr : given->constant.get(), otherwise);
  };
  const Extents starts = list("starts", 1, {});
  const Extents ends = list("ends", 2, {});
  Extents every(starts.size());
  std::iota(every.begin(), every.end(), 0);
  const Extents axes = list("axes", 3, every);
  const Extents steps = list("steps", 4, Extents(starts.size(), 1));
  check(!starts.empty() && starts.size() == ends.size() && starts.size() == axes.size() && steps.size() == axes.size(),
        ExitCode::usage, "its starts, ends, axes and steps do not match");
  const Extents whole = extents(x);
  ImportedValue value = x;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t axis = normal_axes({axes[i]}, x.rank)[0];
    check(steps[i] == 1, ExitCode::usage, "only steps of 1 are supported, it has {}", steps[i]);
    const bool all = starts[i] == 0 && (ends[i] == std::numeric_limits<std::int64_t>::max() ||
                                        ends[i] >= whole[static_cast<std::size_t>(axis)]);
    if (all && axis != channel_axis(x)) continue;
    check(axis == channel_axis(x) && !x.padding.any(), ExitCode::usage, kOnlyChannels, "sliced", axis);
    value = part(value, starts[i], ends[i]);
  }
  return value;
}

// [N, C, H, W] as [N, groups, C / groups, H, W], the first step of a shuffle of channels.
ImportedValue Importer::grouped(const ImportedValue& x, const Extents& target) const {
  const Shape& shape = result_.graph.shape(x.layer);
  check(x.rank == 4 && !x.channels_last && target.size() == 5 && target[1] >= 1 &&
            target == Extents{1, target[1], shape.channels / target[1], shape.height, shape.width},
        ExitCode::usage, "it reshapes to more than four extents, which is supported only to shuffle channels");
  ImportedValue value = x;
  value.rank = 5;
  value.groups = target[1];
  return value;
}

}  // namespace ddp
