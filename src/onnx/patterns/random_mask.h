// Recognises products with random masks in an ONNX model: stochastic depth, spatial dropout, and dropout by hand.
#pragma once

#include "onnx/file/model.h"

namespace ddp {

// PyTorch's exporters write torchvision's StochasticDepth as the product of x and (r < p) / p, where r is uniformly
// random with one number per sample, and Dropout2d with one number per channel of a sample. Such a product becomes a
// Dropout with the ratio 1 - p and, as a fourth input that ONNX does not have, the shape of the mask.
void join_random_masks(OnnxModel& model);

}  // namespace ddp
