// Layer names, derived from the names that an exporter gave to weights and nodes. Names of PyTorch parameters are kept;
// generated names are replaced by the node's scope in the model.
//
//   LayerNames names;
//   names.choose("layer1.0.conv1.weight", node);   // "layer1.0.conv1"
//   names.choose("onnx::Conv_193", node);   // "layer1.0.conv2", of the node "/layer1/layer1.0/conv2/Conv"
//   names.choose("model/dense/MatMul/ReadVariableOp:0", node);   // "model.dense"
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "onnx/file/model.h"

namespace ddp {

// Whether an exporter seems to have numbered the value, as in "onnx::Conv_193", "val_7" or "45". Modules may have such names:
// only what a layer is called depends on it, and which tensors runs of older versions train.
bool is_made_up(std::string_view name);

// Whether an exporter made the name, and it says nothing of the module's own: "onnx::Conv_193", "const_fold_opt__12",
// "model/dense/MatMul/ReadVariableOp:0".
bool is_generated(std::string_view name);

// Whether files of weights and terminals can show the name: it is UTF-8 without control characters, neither empty nor very
// long, and not the key that safetensors reserves.
bool is_storable(std::string_view name);

// `text` for a terminal: if it is not UTF-8 or has control characters, bytes that are not printable ASCII become "\\x1b".
std::string shown(std::string_view text);

class LayerNames {
 public:
  // `older`: as versions before is_generated().
  explicit LayerNames(bool older = false) : older_(older) {}
  // A unique name for the layer of `node` with the initializer `weight` ("": none) as weights.
  std::string choose(const std::string& weight, const OnnxNode& node);

 private:
  bool older_;
  std::set<std::string> taken_;
};

}  // namespace ddp
