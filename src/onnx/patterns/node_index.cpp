#include "onnx/patterns/node_index.h"

#include <algorithm>

namespace ddp {

NodeIndex::NodeIndex(OnnxModel& model) : model_(model) {
  for (OnnxNode& node : model.nodes) {
    if (node.outputs.size() == 1) producers_[node.outputs[0]] = &node;
    // The second input of CastLike is read for its type alone.
    const std::size_t read = node.type == "CastLike" ? 1 : node.inputs.size();
    for (std::size_t i = 0; i < std::min(read, node.inputs.size()); ++i) readers_[node.inputs[i]].push_back(&node);
  }
  for (const OnnxValue& output : model.outputs) readers_[output.name].push_back(nullptr);
}

OnnxNode* NodeIndex::producer(const std::string& value) const {
  const auto found = producers_.find(value);
  return found == producers_.end() ? nullptr : found->second;
}

OnnxNode* NodeIndex::producer(const std::string& value, std::string_view type) const {
  OnnxNode* node = producer(value);
  return node != nullptr && node->type == type ? node : nullptr;
}

OnnxNode* NodeIndex::only_reader(const std::string& value, std::string_view type) const {
  const auto found = readers_.find(value);
  if (found == readers_.end() || found->second.size() != 1) return nullptr;
  OnnxNode* reader = found->second.front();
  return reader != nullptr && reader->type == type ? reader : nullptr;
}

std::size_t NodeIndex::readers(const std::string& value) const {
  const auto found = readers_.find(value);
  return found == readers_.end() ? 0 : found->second.size();
}

NodeIndex::Source NodeIndex::source(std::string value, const std::vector<std::string_view>& through) const {
  // Such nodes are rare, and chains of them rarer; the limit ends cycles.
  constexpr int kMost = 4;
  for (int i = 0; i <= kMost; ++i) {
    if (const auto found = model_.initializers.find(value); found != model_.initializers.end()) {
      return {&found->second, nullptr};
    }
    const OnnxNode* node = producer(value);
    if (node == nullptr) break;
    if (node->type == "Constant") {
      const auto found = node->attributes.find("value");
      const OnnxTensor* tensor = found == node->attributes.end() ? nullptr : std::get_if<OnnxTensor>(&found->second);
      return {tensor, node};
    }
    if (std::find(through.begin(), through.end(), node->type) == through.end()) break;
    value = node->input(0);
  }
  return {};
}

std::optional<double> NodeIndex::number(const std::string& value) const {
  const Source found = source(value, {"Cast", "CastLike"});
  if (found.tensor != nullptr) {
    if (found.tensor->reals.size() != 1) return std::nullopt;
    return static_cast<double>(found.tensor->reals[0]);
  }
  if (found.node == nullptr) return std::nullopt;
  for (const char* name : {"value_float", "value_floats"}) {
    const auto own = found.node->attributes.find(name);
    if (own == found.node->attributes.end()) continue;
    if (const auto* one = std::get_if<float>(&own->second)) return static_cast<double>(*one);
    const auto* list = std::get_if<std::vector<float>>(&own->second);
    if (list != nullptr && list->size() == 1) return static_cast<double>(list->front());
  }
  return std::nullopt;
}

std::optional<std::vector<std::int64_t>> NodeIndex::integers(const std::string& value) const {
  const Source found = source(value, {"Cast", "CastLike", "Reshape"});
  if (found.tensor != nullptr) {
    if (found.tensor->type != OnnxTensor::Type::integer) return std::nullopt;
    return found.tensor->integers;
  }
  if (found.node == nullptr) return std::nullopt;
  if (found.node->attributes.contains("value_int")) return std::vector{found.node->integer("value_int", 0)};
  if (found.node->attributes.contains("value_ints")) return found.node->integers("value_ints", {});
  return std::nullopt;
}

std::optional<std::int64_t> NodeIndex::integer(const std::string& value) const {
  const std::optional<std::vector<std::int64_t>> found = integers(value);
  if (!found || found->size() != 1) return std::nullopt;
  return found->front();
}

}  // namespace ddp
