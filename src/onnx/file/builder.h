// An ONNX model, node by node, in which every name is used once.
//
//   OnnxBuilder builder;
//   builder.take("conv.weight");                                       // for a tensor that keeps its name
//   std::string y = builder.add_value("Relu", "relu", {"input"}, "y");   // "y", or "y_" if that is taken
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "onnx/file/model.h"

namespace ddp {

class OnnxBuilder {
 public:
  using Integers = std::vector<std::int64_t>;
  using Attributes = std::map<std::string, OnnxAttribute, std::less<>>;

  // No other value gets this name.
  void take(const std::string& name) { taken_.insert(name); }
  bool is_taken(const std::string& name) const { return taken_.contains(name); }

  // A name for a value that is not a tensor of the network; tensors keep theirs.
  std::string fresh(std::string name) {
    while (!taken_.insert(name).second) name += '_';
    return name;
  }

  // Adds a node with a new value, and returns that.
  std::string add_value(const std::string& type, const std::string& name, std::vector<std::string> inputs,
                        const std::string& value, Attributes attributes = {}) {
    std::string result = fresh(value);
    add(type, name, std::move(inputs), result, std::move(attributes));
    return result;
  }

  std::string integers(const std::string& name, Integers values) {
    const std::string result = fresh(name);
    const auto count = static_cast<std::int64_t>(values.size());
    model_.initializers[result] = OnnxTensor::of_integers({count}, std::move(values));
    return result;
  }

  // A Constant node.
  std::string constant(const std::string& name, OnnxTensor tensor) {
    return add_value("Constant", unique(name + ".constant", 0), {}, name, {{"value", std::move(tensor)}});
  }

  // A name for a node.
  std::string unique(const std::string& name, int index) {
    std::string result = names_.insert(name).second ? name : fmt::format("{}_{}", name, index);
    while (result != name && !names_.insert(result).second) result += '_';
    return result;
  }

  void add(const std::string& type, const std::string& name, std::vector<std::string> inputs, const std::string& result,
           Attributes attributes = {}) {
    model_.nodes.push_back({name, type, std::move(inputs), {result}, std::move(attributes)});
  }

  std::string initializer(const std::string& name, Integers shape, std::vector<float> floats) {
    DDP_ASSERT(model_.initializers.emplace(name, OnnxTensor::of_reals(std::move(shape), std::move(floats))).second);
    return name;
  }

  // The first opset with an operator; all other operators used here have the same meaning in it.
  void at_least(std::int64_t opset, std::int64_t ir_version) {
    model_.opset = std::max<std::int64_t>(model_.opset, opset);
    model_.ir_version = std::max<std::int64_t>(model_.ir_version, ir_version);
  }

 protected:
  OnnxModel model_;

 private:
  std::set<std::string> names_ = {"input", "logits"};  // of nodes
  std::set<std::string> taken_;                        // of values
};

}  // namespace ddp
