// PyTorch's AdaptiveAvgPool2d, for which ONNX has no operator: windows of different sizes where the size of the image is
// not a multiple of that of the result.
//
//   join_adaptive_pools(model);   // before an import
//
// PyTorch's newer exporter writes a GatherND of all windows, with indices that it computes, and their mean; where windows
// differ in size, with a mask of what is beyond them. Our own export writes two products with matrices of averages.
#pragma once

#include <cstdint>
#include <vector>

#include "onnx/file/model.h"

namespace ddp {

// Replaces such nodes by one of type AdaptiveAveragePool with the attributes "input" and "output": heights and widths.
void join_adaptive_pools(OnnxModel& model);

// [results][size]: row i averages the elements from floor(i * size / results) to ceil((i + 1) * size / results).
std::vector<float> averaging_matrix(std::int64_t size, std::int64_t results);

}  // namespace ddp
