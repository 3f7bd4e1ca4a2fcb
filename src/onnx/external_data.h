// Tensors of an ONNX model whose data lie in other files ("external data"): PyTorch's newer exporter writes
// net.onnx.data beside net.onnx, onnx.save_model() one file or one a tensor.
//
//   if (inline_external_data(proto, FileContext("net.onnx"))) bytes = serialize(proto);
#pragma once

#include "onnx/file_context.h"

namespace onnx {
class ModelProto;
}

namespace ddp {

// Reads the data of initializers and of constants among the attributes of nodes into the model; whether there were any.
// Locations are relative to the model's folder and stay in it. Throws Error(data) where a file cannot be read, a part
// lies beyond its end, or its length is not that of the tensor's shape.
bool inline_external_data(onnx::ModelProto& proto, const FileContext& context);

}  // namespace ddp
