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

#include "onnx/model.h"

namespace ddp {

// Whether an exporter numbered the value, as in "onnx::Conv_193", "val_7", "const_fold_opt__12" or "45".
bool is_made_up(std::string_view name);

class LayerNames {
 public:
  // A unique name for the layer of `node` with the initializer `weight` ("": none) as weights.
  std::string choose(const std::string& weight, const OnnxNode& node);

 private:
  std::set<std::string> taken_;
};

}  // namespace ddp
