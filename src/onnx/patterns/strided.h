// Recognises gathers of all elements in their order in an ONNX model.
#pragma once

#include "onnx/file/model.h"

namespace ddp {

// Where AdaptiveAvgPool2d(1) reads an image whose channels are last in memory, as in ConvNeXt, PyTorch's newer exporter
// writes behind the mean a Gather of its elements at n * channels + c, computed from ranges, which are all of them in
// their order. It becomes a Reshape to [N, channels, 1, 1].
void join_strided(OnnxModel& model);

}  // namespace ddp
