// Recognises normalisations that exporters write as several nodes of an ONNX model.
#pragma once

#include "onnx/file/model.h"

namespace ddp {

// Layer normalisation before opset 17, (x - mean) / sqrt(variance + epsilon) * weight + bias with two ReduceMean over
// the last axis, becomes LayerNormalization. Group normalisation, an InstanceNormalization of x as [N, groups, -1],
// reshaped back, times weight and plus bias, becomes GroupNormalization with three more inputs, which ONNX does not
// have: the shape with groups, and the scale and bias of the InstanceNormalization, for the importer to check.
void join_norms(OnnxModel& model);

}  // namespace ddp
