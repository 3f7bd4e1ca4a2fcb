#include "onnx/file/half_weights.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/types/half.h"

namespace ddp {
namespace {

constexpr std::int64_t kFloat = 1;  // TensorProto.DataType

void round_tensor(const std::string& name, OnnxTensor& tensor, std::string_view type) {
  const bool half = type == "FLOAT16";
  for (float& value : tensor.reals) {
    value = half ? half_to_float(float_to_half(value)) : bfloat16_to_float(float_to_bfloat16(value));
    check(std::isfinite(value), ExitCode::non_finite, "tensor '{}' has values beyond the largest of {}", name, type);
  }
  tensor.type_name = type;
}

}  // namespace

void store_weights_as(OnnxModel& model, std::string_view type, const std::set<std::string>& names) {
  DDP_ASSERT(type == "FLOAT16" || type == "BFLOAT16");
  std::set<std::string> taken;
  for (const OnnxValue& input : model.inputs) taken.insert(input.name);
  for (const auto& [name, tensor] : model.initializers) taken.insert(name);
  for (const OnnxNode& node : model.nodes) taken.insert(node.outputs.begin(), node.outputs.end());
  std::vector<OnnxNode> nodes;
  std::map<std::string, std::string> cast;
  for (auto& [name, tensor] : model.initializers) {
    if (tensor.type != OnnxTensor::Type::real || !names.contains(name)) continue;
    round_tensor(name, tensor, type);
    std::string result = name + ".float";
    while (!taken.insert(result).second) result += '_';
    nodes.push_back({.name = name + ".cast",
                     .type = "Cast",
                     .inputs = {name},
                     .outputs = {result},
                     .attributes = {{"to", kFloat}}});
    cast[name] = result;
  }
  for (OnnxNode& node : model.nodes) {
    for (std::string& input : node.inputs) {
      if (const auto found = cast.find(input); found != cast.end()) input = found->second;
    }
    nodes.push_back(std::move(node));
  }
  model.nodes = std::move(nodes);
}

}  // namespace ddp
