#include "onnx/gelu.h"

#include <cmath>
#include <optional>

namespace ddp {
namespace {

class GeluJoiner {
 public:
  explicit GeluJoiner(OnnxModel& model) : model_(model) {
    for (OnnxNode& node : model.nodes) {
      if (node.outputs.size() == 1) producers_[node.outputs[0]] = &node;
      for (const std::string& input : node.inputs) readers_[input].push_back(&node);
    }
    for (const OnnxValue& output : model.outputs) readers_[output.name].push_back(nullptr);
  }

  void run() {
    for (OnnxNode& node : model_.nodes) {
      if (node.type == "Erf") join(node);
    }
  }

 private:
  // The two factors of a product.
  struct Scaled {
    std::string value;
    double factor = 1;
  };

  // The value of a constant with one element; otherwise nullopt.
  std::optional<double> number(const std::string& name) const {
    const OnnxTensor* tensor = nullptr;
    if (const auto found = model_.initializers.find(name); found != model_.initializers.end()) tensor = &found->second;
    if (const auto found = producers_.find(name); found != producers_.end() && found->second->type == "Constant") {
      const auto value = found->second->attributes.find("value");
      if (value != found->second->attributes.end()) tensor = std::get_if<OnnxTensor>(&value->second);
    }
    if (tensor == nullptr || tensor->reals.size() != 1) return std::nullopt;
    return static_cast<double>(tensor->reals[0]);
  }

  static bool near(double a, double b) { return std::abs(a - b) < 1e-3; }

  // Matches `node` as a value times a number: Mul or Div by a constant.
  std::optional<Scaled> scaled(const OnnxNode& node) const {
    if (node.type == "Div" && node.inputs.size() == 2) {
      if (const std::optional<double> divisor = number(node.inputs[1])) return Scaled{node.inputs[0], 1 / *divisor};
    }
    if (node.type == "Mul" && node.inputs.size() == 2) {
      for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
        if (const std::optional<double> factor = number(node.inputs[side])) {
          return Scaled{node.inputs[1 - side], *factor};
        }
      }
    }
    return std::nullopt;
  }

  const OnnxNode* producer(const std::string& name) const {
    const auto found = producers_.find(name);
    return found == producers_.end() ? nullptr : found->second;
  }

  // The only reader of a node's result, if it is of this type.
  OnnxNode* only_reader(const OnnxNode& node, std::string_view type) const {
    const auto found = readers_.find(node.outputs[0]);
    if (found == readers_.end() || found->second.size() != 1) return nullptr;
    OnnxNode* reader = found->second.front();
    return reader != nullptr && reader->type == type && reader->inputs.size() == 2 ? reader : nullptr;
  }

  // The other input of a node with two inputs.
  static const std::string& other(const OnnxNode& node, const std::string& one) {
    return node.inputs[node.inputs[0] == one ? 1 : 0];
  }

  // Whether the value is x / 2.
  bool is_half(const std::string& value, const std::string& x) const {
    const OnnxNode* node = producer(value);
    const std::optional<Scaled> half = node == nullptr ? std::nullopt : scaled(*node);
    return half && half->value == x && near(half->factor, 0.5);
  }

  void join(const OnnxNode& erf) {
    const OnnxNode* before = producer(erf.input(0));
    const std::optional<Scaled> argument = before == nullptr ? std::nullopt : scaled(*before);
    if (!argument || !near(argument->factor, std::sqrt(0.5))) return;
    const std::string x = argument->value;
    const OnnxNode* sum = only_reader(erf, "Add");
    if (sum == nullptr || !near(number(other(*sum, erf.outputs[0])).value_or(0), 1)) return;
    OnnxNode* product = only_reader(*sum, "Mul");
    if (product == nullptr) return;
    // (x / 2) * sum, or x * sum * 0.5, or 0.5 * sum * x.
    const std::string factor = other(*product, sum->outputs[0]);
    if (is_half(factor, x)) return replace(*product, x);
    OnnxNode* last = only_reader(*product, "Mul");
    if (last == nullptr) return;
    const std::string second = other(*last, product->outputs[0]);
    const bool x_first = factor == x && near(number(second).value_or(0), 0.5);
    const bool half_first = second == x && near(number(factor).value_or(0), 0.5);
    if (x_first || half_first) replace(*last, x);
  }

  static void replace(OnnxNode& node, const std::string& x) {
    node.type = "Gelu";
    node.inputs = {x};
    node.attributes.clear();
  }

  OnnxModel& model_;
  std::map<std::string, OnnxNode*> producers_;
  std::map<std::string, std::vector<OnnxNode*>> readers_;  // null: the model's output
};

}  // namespace

void join_gelu(OnnxModel& model) { GeluJoiner(model).run(); }

}  // namespace ddp
