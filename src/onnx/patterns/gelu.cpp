#include "onnx/patterns/gelu.h"

#include <cmath>
#include <optional>

#include "onnx/patterns/node_index.h"

namespace ddp {
namespace {

class GeluJoiner {
 public:
  explicit GeluJoiner(OnnxModel& model) : model_(model), index_(model) {}

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

  static bool near(double a, double b) { return std::abs(a - b) < 1e-3; }

  // Matches `node` as a value times a number: Mul or Div by a constant.
  std::optional<Scaled> scaled(const OnnxNode& node) const {
    if (node.type == "Div" && node.inputs.size() == 2) {
      if (const std::optional<double> divisor = index_.number(node.inputs[1]))
        return Scaled{node.inputs[0], 1 / *divisor};
    }
    if (node.type == "Mul" && node.inputs.size() == 2) {
      for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
        if (const std::optional<double> factor = index_.number(node.inputs[side])) {
          return Scaled{node.inputs[1 - side], *factor};
        }
      }
    }
    return std::nullopt;
  }

  // The only reader of a node's result, if it is of this type and has two inputs.
  OnnxNode* only_reader(const OnnxNode& node, std::string_view type) const {
    OnnxNode* reader = index_.only_reader(node.outputs[0], type);
    return reader != nullptr && reader->inputs.size() == 2 ? reader : nullptr;
  }

  // Whether the value is x / 2.
  bool is_half(const std::string& value, const std::string& x) const {
    const OnnxNode* node = index_.producer(value);
    const std::optional<Scaled> half = node == nullptr ? std::nullopt : scaled(*node);
    return half && half->value == x && near(half->factor, 0.5);
  }

  void join(const OnnxNode& erf) {
    const OnnxNode* before = index_.producer(erf.input(0));
    const std::optional<Scaled> argument = before == nullptr ? std::nullopt : scaled(*before);
    if (!argument || !near(argument->factor, std::sqrt(0.5))) return;
    const std::string x = argument->value;
    const OnnxNode* sum = only_reader(erf, "Add");
    if (sum == nullptr || !near(index_.number(NodeIndex::other(*sum, erf.outputs[0])).value_or(0), 1)) return;
    OnnxNode* product = only_reader(*sum, "Mul");
    if (product == nullptr) return;
    // (x / 2) * sum, or x * sum * 0.5, or 0.5 * sum * x.
    const std::string factor = NodeIndex::other(*product, sum->outputs[0]);
    if (is_half(factor, x)) return replace(*product, x);
    OnnxNode* last = only_reader(*product, "Mul");
    if (last == nullptr) return;
    const std::string second = NodeIndex::other(*last, product->outputs[0]);
    const bool x_first = factor == x && near(index_.number(second).value_or(0), 0.5);
    const bool half_first = second == x && near(index_.number(factor).value_or(0), 0.5);
    if (x_first || half_first) replace(*last, x);
  }

  static void replace(OnnxNode& node, const std::string& x) {
    node.type = "Gelu";
    node.inputs = {x};
    node.attributes.clear();
  }

  OnnxModel& model_;
  NodeIndex index_;
};

}  // namespace

void join_gelu(OnnxModel& model) { GeluJoiner(model).run(); }

}  // namespace ddp
