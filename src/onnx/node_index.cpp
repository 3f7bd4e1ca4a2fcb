#include "onnx/node_index.h"

namespace ddp {

NodeIndex::NodeIndex(OnnxModel& model) : model_(model) {
  for (OnnxNode& node : model.nodes) {
    if (node.outputs.size() == 1) producers_[node.outputs[0]] = &node;
    for (const std::string& input : node.inputs) readers_[input].push_back(&node);
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

std::optional<double> NodeIndex::number(const std::string& value) const {
  // Casts are rare, and chains of them rarer; the limit ends cycles.
  constexpr int kMostCasts = 4;
  std::string name = value;
  const OnnxTensor* tensor = nullptr;
  for (int i = 0; i <= kMostCasts && tensor == nullptr; ++i) {
    if (const auto found = model_.initializers.find(name); found != model_.initializers.end()) {
      tensor = &found->second;
      break;
    }
    const OnnxNode* node = producer(name);
    if (node == nullptr) return std::nullopt;
    if (node->type == "Constant") {
      for (const char* attribute : {"value_float", "value"}) {
        const auto found = node->attributes.find(attribute);
        if (found == node->attributes.end()) continue;
        if (const auto* real = std::get_if<float>(&found->second)) return static_cast<double>(*real);
        tensor = std::get_if<OnnxTensor>(&found->second);
      }
      break;
    }
    if (node->type != "Cast" && node->type != "CastLike") return std::nullopt;
    name = node->input(0);
  }
  if (tensor == nullptr || tensor->reals.size() != 1) return std::nullopt;
  return static_cast<double>(tensor->reals[0]);
}

}  // namespace ddp
