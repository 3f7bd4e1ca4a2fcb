// Finds the nodes that compute and read values, to match groups of nodes that mean one operator.
//
//   const NodeIndex index(model);
//   const OnnxNode* before = index.producer(node.input(0));
//   if (before != nullptr && before->type == "Div" && index.number(before->input(1)) == 2) ...
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/file/model.h"

namespace ddp {

class NodeIndex {
 public:
  // The model's nodes must stay where they are.
  explicit NodeIndex(OnnxModel& model);

  // The node with this only output; otherwise null.
  OnnxNode* producer(const std::string& value) const;
  // The same if it is of this type.
  OnnxNode* producer(const std::string& value, std::string_view type) const;
  // The only reader of a value, if it is of this type; null if the value is the model's output.
  OnnxNode* only_reader(const std::string& value, std::string_view type) const;
  // How often the value is read, as the model's output too, but not for its type.
  std::size_t readers(const std::string& value) const;
  // A constant with one element, also behind casts; otherwise nullopt.
  std::optional<double> number(const std::string& value) const;
  // A constant list of integers, or one integer, also behind casts and reshapes; otherwise nullopt.
  std::optional<std::vector<std::int64_t>> integers(const std::string& value) const;
  // Such a list of one integer.
  std::optional<std::int64_t> integer(const std::string& value) const;
  // The other input of a node with two inputs.
  static const std::string& other(const OnnxNode& node, const std::string& one) {
    return node.inputs[node.inputs[0] == one ? 1 : 0];
  }

 private:
  // A Constant node or an initializer, behind nodes of these types.
  struct Source {
    const OnnxTensor* tensor = nullptr;
    const OnnxNode* node = nullptr;
  };
  Source source(std::string value, const std::vector<std::string_view>& through) const;

  OnnxModel& model_;
  std::map<std::string, OnnxNode*> producers_;
  std::map<std::string, std::vector<OnnxNode*>> readers_;  // null: the model's output
};

}  // namespace ddp
