#include "onnx/patterns/norms.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "onnx/patterns/node_index.h"

namespace ddp {
namespace {

class NormJoiner {
 public:
  explicit NormJoiner(OnnxModel& model) : model_(model), index_(model) {}

  void run() {
    for (OnnxNode& node : model_.nodes) {
      if (node.type == "Div" && node.inputs.size() == 2) join_layer(node);
      if (node.type == "InstanceNormalization" && node.inputs.size() == 3) join_group(node);
    }
  }

 private:
  // A constant of one number per channel with its shape as a parameter: behind what adds axes to it.
  std::string parameter(std::string value) const {
    constexpr int kMost = 4;
    for (int i = 0; i < kMost; ++i) {
      const OnnxNode* node = index_.producer(value);
      if (node == nullptr || (node->type != "Unsqueeze" && node->type != "Cast" && node->type != "CastLike")) break;
      value = node->input(0);
    }
    return value;
  }
  // The last axis, by a negative number: the rank is not known here.
  bool over_last_axis(const OnnxNode& node) const {
    std::vector<std::int64_t> axes = node.integers("axes", {});
    if (axes.empty() && !node.input(1).empty()) axes = index_.integers(node.input(1)).value_or(axes);
    return axes == std::vector<std::int64_t>{-1} && node.integer("keepdims", 1) == 1;
  }

  // The value whose mean over the last axis this is; "" if it is none.
  std::string averaged(const std::string& value) const {
    const OnnxNode* node = index_.producer(value, "ReduceMean");
    return node != nullptr && over_last_axis(*node) ? node->input(0) : "";
  }

  // epsilon if `value` is sqrt(mean of deviation^2 + epsilon).
  std::optional<double> spread(const std::string& value, const std::string& deviation) const {
    const OnnxNode* root = index_.producer(value, "Sqrt");
    const OnnxNode* sum = root == nullptr ? nullptr : index_.producer(root->input(0), "Add");
    if (sum == nullptr || sum->inputs.size() != 2) return std::nullopt;
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const std::optional<double> epsilon = index_.number(sum->inputs[side]);
      if (!epsilon) continue;
      const OnnxNode* square = index_.producer(averaged(sum->inputs[1 - side]));
      if (square == nullptr || square->inputs.size() != 2 || square->inputs[0] != deviation) return std::nullopt;
      const bool power = square->type == "Pow" && index_.number(square->inputs[1]) == 2;
      const bool product = square->type == "Mul" && square->inputs[1] == deviation;
      return power || product ? epsilon : std::nullopt;
    }
    return std::nullopt;
  }

  void join_layer(OnnxNode& quotient) {
    const std::string deviation = quotient.inputs[0];
    const OnnxNode* difference = index_.producer(deviation, "Sub");
    if (difference == nullptr || averaged(difference->input(1)) != difference->input(0)) return;
    const std::optional<double> epsilon = spread(quotient.inputs[1], deviation);
    if (!epsilon) return;
    const std::string x = difference->input(0);
    replace(quotient, "LayerNormalization", {x, "", ""},
            {{"axis", std::int64_t{-1}}, {"epsilon", static_cast<float>(*epsilon)}});
  }

  void join_group(OnnxNode& norm) {
    const OnnxNode* before = index_.producer(norm.inputs[0], "Reshape");
    OnnxNode* after = index_.only_reader(norm.outputs[0], "Reshape");
    const OnnxNode* shape = after == nullptr ? nullptr : index_.producer(after->input(1), "Shape");
    if (before == nullptr || shape == nullptr || shape->input(0) != before->input(0)) return;
    std::map<std::string, OnnxAttribute, std::less<>> attributes;
    if (const auto epsilon = norm.attributes.find("epsilon"); epsilon != norm.attributes.end()) {
      attributes.insert(*epsilon);
    }
    const std::vector<std::string> inputs = {before->input(0), "", "", before->input(1), norm.inputs[1],
                                             norm.inputs[2]};
    replace(*after, "GroupNormalization", inputs, std::move(attributes));
  }

  // Writes the operator to the last of its nodes: `normal`, or the product with a weight and the sum with a bias behind.
  void replace(OnnxNode& normal, const std::string& type, std::vector<std::string> inputs,
               std::map<std::string, OnnxAttribute, std::less<>> attributes) {
    OnnxNode* last = &normal;
    OnnxNode* product = behind(normal, "Mul");
    if (product != nullptr) {
      inputs[1] = parameter(NodeIndex::other(*product, normal.outputs[0]));
      last = product;
      if (OnnxNode* sum = behind(*product, "Add"); sum != nullptr) {
        inputs[2] = parameter(NodeIndex::other(*sum, product->outputs[0]));
        last = sum;
      }
    }
    last->type = type;
    last->inputs = std::move(inputs);
    last->attributes = std::move(attributes);
  }

  // The only reader of a node's result, if it adds or multiplies a parameter, of one dimension.
  OnnxNode* behind(const OnnxNode& node, std::string_view type) const {
    OnnxNode* reader = index_.only_reader(node.outputs[0], type);
    if (reader == nullptr || reader->inputs.size() != 2) return nullptr;
    const std::string other = parameter(NodeIndex::other(*reader, node.outputs[0]));
    const auto found = model_.initializers.find(other);
    if (found != model_.initializers.end()) return found->second.shape.size() == 1 ? reader : nullptr;
    // Ones or zeros for affine=False.
    const OnnxNode* same = index_.producer(other, "Expand");
    return same != nullptr && index_.number(same->input(0)) ? reader : nullptr;
  }

  OnnxModel& model_;
  NodeIndex index_;
};

}  // namespace

void join_norms(OnnxModel& model) { NormJoiner(model).run(); }

}  // namespace ddp
