#include "onnx/patterns/fold.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace ddp {
namespace {

using Extents = std::vector<std::int64_t>;
using Inputs = std::vector<const OnnxTensor*>;
using Type = OnnxTensor::Type;

// Larger than any constant of a supported network; a forged file must not exhaust memory.
constexpr std::int64_t kMostElements = std::int64_t{1} << 31;

// A computed constant has at most this many elements, unless an input has more.
constexpr std::int64_t kMostGrown = std::int64_t{1} << 24;

[[noreturn]] void refuse(const std::string& what) { throw Error(ExitCode::usage, what); }

std::int64_t product(const Extents& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) {
    if (extent == kBatchExtent) {
      refuse("it makes values of its own for each sample, such as random numbers, which is not supported");
    }
    if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements) || elements > kMostElements) {
      refuse("it computes a constant that is too large");
    }
  }
  return elements;
}

const OnnxTensor& need(const Inputs& inputs, std::size_t index) {
  check(index < inputs.size() && inputs[index] != nullptr, ExitCode::usage, "its input {} is missing", index);
  const OnnxTensor& tensor = *inputs[index];
  check(tensor.type != Type::other, ExitCode::usage, "its input {} is of type {}, which is not supported", index,
        tensor.type_name);
  return tensor;
}

const Extents& need_integers(const Inputs& inputs, std::size_t index) {
  const OnnxTensor& tensor = need(inputs, index);
  check(tensor.type == Type::integer, ExitCode::usage, "its input {} does not contain integers", index);
  return tensor.integers;
}

// The strides of each dimension in a flat array.
Extents strides_of(const Extents& shape) {
  Extents strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// A tensor of `shape` whose element at index (i0, i1, ...) is the source's at offset + i0*steps[0] + i1*steps[1] ...
OnnxTensor gathered(const OnnxTensor& from, const Extents& shape, const Extents& steps, std::int64_t offset) {
  OnnxTensor to;
  to.type = from.type;
  to.type_name = from.type_name;
  to.shape = shape;
  const std::int64_t count = product(shape);
  Extents index(shape.size(), 0);
  std::int64_t at = offset;
  const auto walk = [&](const auto& source, auto& target) {
    target.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      target.push_back(source[static_cast<std::size_t>(at)]);
      for (std::size_t d = shape.size(); d-- > 0;) {
        at += steps[d];
        if (++index[d] < shape[d]) break;
        at -= steps[d] * shape[d];
        index[d] = 0;
      }
    }
  };
  if (from.type == Type::integer) {
    walk(from.integers, to.integers);
  } else {
    walk(from.reals, to.reals);
  }
  return to;
}

OnnxTensor with_shape(OnnxTensor tensor, Extents shape) {
  tensor.shape = std::move(shape);
  return tensor;
}

OnnxTensor fold_constant(const OnnxNode& node, const Inputs& /*inputs*/) {
  const auto value = [&](std::string_view name) -> const OnnxAttribute* {
    const auto found = node.attributes.find(name);
    return found == node.attributes.end() ? nullptr : &found->second;
  };
  if (const auto* attribute = value("value"); attribute != nullptr && std::holds_alternative<OnnxTensor>(*attribute)) {
    return std::get<OnnxTensor>(*attribute);
  }
  if (node.has("value_float")) return OnnxTensor::of_reals({}, {node.real("value_float", 0)});
  if (node.has("value_int")) return OnnxTensor::of_integers({}, {node.integer("value_int", 0)});
  if (const auto* attribute = value("value_floats")) {
    if (const auto* reals = std::get_if<std::vector<float>>(attribute)) {
      return OnnxTensor::of_reals({static_cast<std::int64_t>(reals->size())}, *reals);
    }
  }
  if (node.has("value_ints")) {
    const Extents integers = node.integers("value_ints", {});
    return OnnxTensor::of_integers({static_cast<std::int64_t>(integers.size())}, integers);
  }
  refuse("it holds no tensor of numbers");
}

OnnxTensor fold_constant_of_shape(const OnnxNode& node, const Inputs& inputs) {
  const Extents& shape = need_integers(inputs, 0);
  constexpr std::int64_t most = 1 << 20;
  const std::int64_t count = product(shape);
  check(count <= most, ExitCode::usage, "it computes a constant of {} elements", count);
  const auto found = node.attributes.find("value");
  OnnxTensor value = OnnxTensor::of_reals({1}, {0});
  if (found != node.attributes.end() && std::holds_alternative<OnnxTensor>(found->second)) {
    value = std::get<OnnxTensor>(found->second);
  }
  check(value.type != Type::other && value.elements() == 1, ExitCode::usage, "its value is not a single number");
  return gathered(value, shape, Extents(shape.size(), 0), 0);
}

OnnxTensor fold_identity(const OnnxNode& /*node*/, const Inputs& inputs) { return need(inputs, 0); }

OnnxTensor cast(OnnxTensor tensor, Type to) {
  if (to == Type::real && tensor.type == Type::integer) {
    const bool batch = std::find(tensor.integers.begin(), tensor.integers.end(), kBatchExtent) != tensor.integers.end();
    check(!batch, ExitCode::usage, "it computes with the number of samples");
    return OnnxTensor::of_reals(tensor.shape, {tensor.integers.begin(), tensor.integers.end()});
  }
  if (to == tensor.type) return tensor;
  OnnxTensor whole = OnnxTensor::of_integers(tensor.shape, {});
  for (const float value : tensor.reals) {
    check(std::abs(value) < 9e15F, ExitCode::usage, "it computes the integer {}, which is too large", value);
    whole.integers.push_back(static_cast<std::int64_t>(value));
  }
  return whole;
}

OnnxTensor fold_cast(const OnnxNode& node, const Inputs& inputs) {
  // TensorProto.DataType of the ONNX specification.
  constexpr std::array<std::int64_t, 4> reals = {1, 10, 11, 16};
  constexpr std::array<std::int64_t, 2> integers = {6, 7};
  const std::int64_t to = node.integer("to", 0);
  const bool to_real = std::find(reals.begin(), reals.end(), to) != reals.end();
  check(to_real || std::find(integers.begin(), integers.end(), to) != integers.end(), ExitCode::usage,
        "it converts to an unsupported type");
  return cast(need(inputs, 0), to_real ? Type::real : Type::integer);
}

OnnxTensor fold_cast_like(const OnnxNode& /*node*/, const Inputs& inputs) {
  return cast(need(inputs, 0), need(inputs, 1).type);
}

OnnxTensor fold_reshape(const OnnxNode& node, const Inputs& inputs) {
  const OnnxTensor& tensor = need(inputs, 0);
  Extents shape = reshaped(tensor.shape, need_integers(inputs, 1), node.integer("allowzero", 0) != 0);
  check(product(shape) == tensor.elements(), ExitCode::usage, "it changes the number of elements");
  return with_shape(tensor, std::move(shape));
}

OnnxTensor fold_transpose(const OnnxNode& node, const Inputs& inputs) {
  const OnnxTensor& tensor = need(inputs, 0);
  Extents reversed(tensor.shape.size());
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return transposed(tensor, node.integers("perm", reversed));
}

OnnxTensor fold_squeeze(const OnnxNode& node, const Inputs& inputs) {
  const OnnxTensor& tensor = need(inputs, 0);
  Extents ones;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 1) ones.push_back(static_cast<std::int64_t>(i));
  }
  const Extents axes = normal_axes(integers_of(node, "axes", inputs.size() > 1 ? inputs[1] : nullptr, ones),
                                   static_cast<std::int64_t>(tensor.shape.size()));
  Extents shape;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(i)) == axes.end()) {
      shape.push_back(tensor.shape[i]);
    } else {
      check(tensor.shape[i] == 1, ExitCode::usage, "it removes an axis of {} elements", tensor.shape[i]);
    }
  }
  return with_shape(tensor, shape);
}

OnnxTensor fold_unsqueeze(const OnnxNode& node, const Inputs& inputs) {
  const OnnxTensor& tensor = need(inputs, 0);
  Extents axes = integers_of(node, "axes", inputs.size() > 1 ? inputs[1] : nullptr, {});
  const std::size_t rank = tensor.shape.size() + axes.size();
  axes = normal_axes(std::move(axes), static_cast<std::int64_t>(rank));
  Extents shape = tensor.shape;
  for (const std::int64_t axis : axes) shape.insert(shape.begin() + axis, 1);
  return with_shape(tensor, shape);
}

// Along the first axis, which suffices for shapes.
OnnxTensor fold_concat(const OnnxNode& node, const Inputs& inputs) {
  OnnxTensor joined = need(inputs, 0);
  const auto rank = static_cast<std::int64_t>(joined.shape.size());
  check(rank == 1 && normal_axes({node.integer("axis", 0)}, rank)[0] == 0, ExitCode::usage,
        "it joins constants of several dimensions");
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    const OnnxTensor& next = need(inputs, i);
    check(next.type == joined.type && next.shape.size() == 1, ExitCode::usage, "it joins different kinds of constants");
    joined.reals.insert(joined.reals.end(), next.reals.begin(), next.reals.end());
    joined.integers.insert(joined.integers.end(), next.integers.begin(), next.integers.end());
    joined.shape[0] += next.shape[0];
    check(joined.shape[0] <= kMostGrown, ExitCode::usage, "it computes a constant that is too large");
  }
  return joined;
}

OnnxTensor fold_gather(const OnnxNode& node, const Inputs& inputs) {
  const OnnxTensor& tensor = need(inputs, 0);
  const OnnxTensor& indices = need(inputs, 1);
  check(tensor.shape.size() == 1 && node.integer("axis", 0) == 0 && indices.type == Type::integer, ExitCode::usage,
        "it selects from a constant with several dimensions");
  OnnxTensor picked;
  picked.type = tensor.type;
  picked.shape = indices.shape;
  for (std::int64_t index : indices.integers) {
    if (index < 0) index += tensor.shape[0];
    check(index >= 0 && index < tensor.shape[0], ExitCode::usage, "it selects element {} of {}", index,
          tensor.shape[0]);
    const auto at = static_cast<std::size_t>(index);
    if (tensor.type == Type::integer) {
      picked.integers.push_back(tensor.integers[at]);
    } else {
      picked.reals.push_back(tensor.reals[at]);
    }
  }
  return picked;
}

OnnxTensor fold_slice(const OnnxNode& node, const Inputs& inputs) {
  const OnnxTensor& tensor = need(inputs, 0);
  const auto list = [&](std::string_view name, std::size_t index, const Extents& otherwise) {
    return integers_of(node, name, index < inputs.size() ? inputs[index] : nullptr, otherwise);
  };
  const Extents starts = list("starts", 1, {});
  const Extents ends = list("ends", 2, {});
  Extents all(starts.size());
  std::iota(all.begin(), all.end(), 0);
  const Extents axes = list("axes", 3, all);
  const Extents steps = list("steps", 4, Extents(starts.size(), 1));
  check(ends.size() == starts.size() && axes.size() == starts.size() && steps.size() == starts.size(), ExitCode::usage,
        "its lists differ in length");
  Extents shape = tensor.shape;
  Extents strides = strides_of(tensor.shape);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto axis =
        static_cast<std::size_t>(normal_axes({axes[i]}, static_cast<std::int64_t>(tensor.shape.size()))[0]);
    const std::int64_t extent = tensor.shape[axis];
    const std::int64_t step = steps[i];
    constexpr std::int64_t kLargestStep = 1 << 30;
    check(step != 0 && std::abs(step) <= kLargestStep, ExitCode::usage, "it has a step of {}", step);
    const auto place = [&](std::int64_t at) {
      if (at < 0) at = at < -extent ? -1 - extent : at + extent;
      return step > 0 ? std::clamp<std::int64_t>(at, 0, extent) : std::clamp<std::int64_t>(at, -1, extent - 1);
    };
    const std::int64_t first = place(starts[i]);
    const std::int64_t last = place(ends[i]);
    const std::int64_t span = step > 0 ? last - first : first - last;
    shape[axis] = std::max<std::int64_t>(0, (span + std::abs(step) - 1) / std::abs(step));
    offset += first * strides[axis];
    strides[axis] *= step;
  }
  return gathered(tensor, shape, strides, product(shape) == 0 ? 0 : offset);
}

// numpy's broadcasting: extents of 1 are repeated.
Extents broadcast_shape(const Extents& a, const Extents& b) {
  Extents shape(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    check(x == y || x == 1 || y == 1, ExitCode::usage, "its input shapes cannot be broadcast");
    shape[shape.size() - 1 - i] = x == 1 ? y : x;
  }
  return shape;
}

OnnxTensor repeated(const OnnxTensor& tensor, const Extents& shape) {
  const Extents own = strides_of(tensor.shape);
  Extents steps(shape.size(), 0);
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    const std::size_t from = tensor.shape.size() - 1 - i;
    if (tensor.shape[from] != 1) steps[shape.size() - 1 - i] = own[from];
  }
  return gathered(tensor, shape, steps, 0);
}

std::int64_t compute(const std::string& type, std::int64_t a, std::int64_t b) {
  check(a != kBatchExtent && b != kBatchExtent, ExitCode::usage, "it computes with the number of samples");
  std::int64_t result = 0;
  bool overflow = false;
  if (type == "Add") overflow = __builtin_add_overflow(a, b, &result);
  if (type == "Sub") overflow = __builtin_sub_overflow(a, b, &result);
  if (type == "Mul") overflow = __builtin_mul_overflow(a, b, &result);
  if (type == "Div") {
    check(b != 0 && (b != -1 || a != kBatchExtent), ExitCode::usage, "it divides by 0");
    result = a / b;
  }
  check(!overflow, ExitCode::usage, "it computes a number that is too large");
  return result;
}

float compute(const std::string& type, float a, float b) {
  if (type == "Add") return a + b;
  if (type == "Sub") return a - b;
  return type == "Mul" ? a * b : a / b;
}

OnnxTensor fold_arithmetic(const OnnxNode& node, const Inputs& inputs) {
  const OnnxTensor& a = need(inputs, 0);
  const OnnxTensor& b = need(inputs, 1);
  check(a.type == b.type, ExitCode::usage, "its inputs are of different types");
  const Extents shape = broadcast_shape(a.shape, b.shape);
  check(product(shape) <= std::max({kMostGrown, a.elements(), b.elements()}), ExitCode::usage,
        "it computes a constant of {} elements", product(shape));
  OnnxTensor result = repeated(a, shape);
  const OnnxTensor other = repeated(b, shape);
  for (std::size_t i = 0; i < result.integers.size(); ++i) {
    result.integers[i] = compute(node.type, result.integers[i], other.integers[i]);
  }
  for (std::size_t i = 0; i < result.reals.size(); ++i) {
    result.reals[i] = compute(node.type, result.reals[i], other.reals[i]);
  }
  return result;
}

OnnxTensor fold_shape(const OnnxNode& node, const Inputs& inputs) { return shape_part(node, need(inputs, 0).shape); }

OnnxTensor fold_expand(const OnnxNode& /*node*/, const Inputs& inputs) {
  const OnnxTensor& tensor = need(inputs, 0);
  const Extents shape = broadcast_shape(tensor.shape, need_integers(inputs, 1));
  check(product(shape) <= kMostGrown, ExitCode::usage, "it computes a constant of {} elements", product(shape));
  return repeated(tensor, shape);
}

using Fold = OnnxTensor (*)(const OnnxNode&, const Inputs&);
constexpr std::array<std::pair<std::string_view, Fold>, 18> kFolds = {{
    {"Add", fold_arithmetic},
    {"Cast", fold_cast},
    {"CastLike", fold_cast_like},
    {"Concat", fold_concat},
    {"Constant", fold_constant},
    {"ConstantOfShape", fold_constant_of_shape},
    {"Div", fold_arithmetic},
    {"Expand", fold_expand},
    {"Gather", fold_gather},
    {"Identity", fold_identity},
    {"Mul", fold_arithmetic},
    {"Reshape", fold_reshape},
    {"Shape", fold_shape},
    {"Slice", fold_slice},
    {"Squeeze", fold_squeeze},
    {"Sub", fold_arithmetic},
    {"Transpose", fold_transpose},
    {"Unsqueeze", fold_unsqueeze},
}};

const std::pair<std::string_view, Fold>* find_fold(std::string_view type) {
  const auto* found = std::find_if(kFolds.begin(), kFolds.end(), [&](const auto& each) { return each.first == type; });
  return found == kFolds.end() ? nullptr : found;
}

}  // namespace

bool folds(std::string_view type) { return find_fold(type) != nullptr; }

OnnxTensor fold(const OnnxNode& node, const std::vector<const OnnxTensor*>& inputs) {
  const auto* known = find_fold(node.type);
  DDP_ASSERT(known != nullptr);
  return known->second(node, inputs);
}

Extents integers_of(const OnnxNode& node, std::string_view attribute, const OnnxTensor* input,
                    const Extents& otherwise) {
  if (input == nullptr) return node.integers(attribute, otherwise);
  check(input->type == Type::integer && input->shape.size() <= 1, ExitCode::usage, "its {} are not a list of numbers",
        attribute);
  return input->integers;
}

Extents normal_axes(Extents axes, std::int64_t rank) {
  for (std::int64_t& axis : axes) {
    check(axis >= -rank && axis < rank, ExitCode::usage, "axis {} of a tensor with {} dimensions", axis, rank);
    if (axis < 0) axis += rank;
  }
  std::sort(axes.begin(), axes.end());
  check(std::adjacent_find(axes.begin(), axes.end()) == axes.end(), ExitCode::usage, "an axis is named twice");
  return axes;
}

Extents reshaped(const Extents& from, Extents target, bool zero_is_zero) {
  std::int64_t known = 1;
  std::size_t open = target.size();
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (target[i] == 0 && !zero_is_zero) {
      check(i < from.size(), ExitCode::usage, "it copies an extent that does not exist");
      target[i] = from[i];
    }
    if (target[i] == -1) {
      check(open == target.size(), ExitCode::usage, "it infers two extents");
      open = i;
    } else {
      check(target[i] >= 0 && !__builtin_mul_overflow(known, target[i], &known), ExitCode::usage,
            "its shape is impossible");
    }
  }
  if (open < target.size()) {
    check(known != 0 && product(from) % known == 0, ExitCode::usage, "its shape does not match the number of elements");
    target[open] = product(from) / known;
  }
  return target;
}

OnnxTensor shape_part(const OnnxNode& node, const Extents& shape) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto place = [&](std::string_view name, std::int64_t otherwise) {
    const std::int64_t at = node.integer(name, otherwise);
    return std::clamp<std::int64_t>(at < 0 ? std::max(at, -rank) + rank : at, 0, rank);
  };
  const std::int64_t begin = place("start", 0);
  const std::int64_t end = std::max(begin, place("end", rank));
  return OnnxTensor::of_integers({end - begin}, Extents(shape.begin() + begin, shape.begin() + end));
}

OnnxTensor transposed(const OnnxTensor& tensor, const Extents& permutation) {
  const auto rank = static_cast<std::int64_t>(tensor.shape.size());
  check(permutation.size() == tensor.shape.size() && normal_axes(permutation, rank).size() == permutation.size(),
        ExitCode::usage, "its permutation does not match {} dimensions", rank);
  const Extents strides = strides_of(tensor.shape);
  Extents shape;
  Extents steps;
  for (const std::int64_t axis : permutation) {
    const auto at = static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
    shape.push_back(tensor.shape[at]);
    steps.push_back(strides[at]);
  }
  return gathered(tensor, shape, steps, 0);
}

}  // namespace ddp
