// Constant folding. Exporters leave many constant nodes around weights (Transpose, Identity) and around shapes (Shape,
// Gather, Concat before a Reshape).
//
//   if (folds("Transpose")) OnnxTensor w = fold(node, {&weight});
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "onnx/file/model.h"

namespace ddp {

// Represents the dynamic number of samples in shapes. It may be copied but not computed with.
inline constexpr std::int64_t kBatchExtent = std::numeric_limits<std::int64_t>::min();

// Whether fold() supports nodes of this type.
bool folds(std::string_view type);

// Returns the first output. An omitted input is null. Throws Error(usage) naming what is not supported.
OnnxTensor fold(const OnnxNode& node, const std::vector<const OnnxTensor*>& inputs);

// A list of integers from an attribute or, in later opsets, from a constant input; `otherwise` if there is neither.
// Throws Error(usage) if the input is not a list of integers.
std::vector<std::int64_t> integers_of(const OnnxNode& node, std::string_view attribute, const OnnxTensor* input,
                                      const std::vector<std::int64_t>& otherwise);

// The axes as non-negative indices, sorted. Throws Error(usage) for an axis out of range of `rank` dimensions.
std::vector<std::int64_t> normal_axes(std::vector<std::int64_t> axes, std::int64_t rank);

// The result shape of a Reshape of a tensor of shape `from` to `target`: 0 copies an extent, -1 is inferred.
std::vector<std::int64_t> reshaped(const std::vector<std::int64_t>& from, std::vector<std::int64_t> target,
                                   bool zero_is_zero);

// The result of a Shape node for a tensor of this shape, with its attributes "start" and "end".
OnnxTensor shape_part(const OnnxNode& node, const std::vector<std::int64_t>& shape);

// The dimensions permuted as by ONNX's Transpose.
OnnxTensor transposed(const OnnxTensor& tensor, const std::vector<std::int64_t>& permutation);

}  // namespace ddp
