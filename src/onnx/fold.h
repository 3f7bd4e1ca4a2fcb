// Computes nodes whose inputs are all constants. Exporters leave many of these around weights (Transpose, Identity) and
// around shapes (Shape, Gather, Concat before a Reshape).
//
//   if (folds("Transpose")) OnnxTensor w = fold(node, {&weight});
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "onnx/model.h"

namespace ddp {

// Stands in shapes for the number of samples, which a network leaves open. It may be moved about, not computed with.
inline constexpr std::int64_t kBatchExtent = std::numeric_limits<std::int64_t>::min();

// Whether fold() knows nodes of this type.
bool folds(std::string_view type);

// The first output. An input that is left out is null. Throws Error(usage) saying what of it is not supported.
OnnxTensor fold(const OnnxNode& node, const std::vector<const OnnxTensor*>& inputs);

// A list of whole numbers from an attribute or, from some opset on, from a constant input; `otherwise` where neither is
// there. Throws Error(usage) for an input that is no list of whole numbers.
std::vector<std::int64_t> integers_of(const OnnxNode& node, std::string_view attribute, const OnnxTensor* input,
                                      const std::vector<std::int64_t>& otherwise);

// The axes counted from 0, sorted. Throws Error(usage) for an axis that a tensor of `rank` dimensions does not have.
std::vector<std::int64_t> normal_axes(std::vector<std::int64_t> axes, std::int64_t rank);

// The shape that a Reshape to `target` makes of `elements` elements of a tensor of shape `from`: 0 takes over an
// extent, -1 is what is left.
std::vector<std::int64_t> reshaped(const std::vector<std::int64_t>& from, std::vector<std::int64_t> target,
                                   bool zero_is_zero);

// What a Shape node gives for a tensor of this shape: all of it, or from its attribute "start" to "end".
OnnxTensor shape_part(const OnnxNode& node, const std::vector<std::int64_t>& shape);

// Dimensions permuted as ONNX's Transpose does.
OnnxTensor transposed(const OnnxTensor& tensor, const std::vector<std::int64_t>& permutation);

}  // namespace ddp
