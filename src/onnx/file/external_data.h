// Tensors of an ONNX model with data in other files ("external data"): PyTorch's newer exporter writes net.onnx.data
// beside net.onnx; onnx.save_model() writes one file, or one per tensor.
//
//   if (inline_external_data(proto, FileContext("net.onnx"))) bytes = serialize(proto);
#pragma once

#include "onnx/file/file_context.h"

namespace onnx {
class ModelProto;
}

namespace ddp {

// Reads the external data of initializers and of constant attributes into the model; returns whether there were any.
// Locations are relative to the model's folder and must not leave it. Throws Error(data) if a file cannot be read, a
// part extends beyond its end, or its length does not match the tensor's shape.
bool inline_external_data(onnx::ModelProto& proto, const FileContext& context);

}  // namespace ddp
