#include "onnx/patterns/swish.h"

#include "onnx/patterns/node_index.h"

namespace ddp {
namespace {

class SwishJoiner {
 public:
  explicit SwishJoiner(OnnxModel& model) : model_(model), index_(model) {}

  void run() {
    for (OnnxNode& node : model_.nodes) {
      if (node.type != "Mul" || node.inputs.size() != 2) continue;
      if (!join(node, 0)) join(node, 1);
    }
  }

 private:
  // The node that computes a value for a single reader.
  const OnnxNode* producer(const std::string& value) const {
    return index_.readers(value) == 1 ? index_.producer(value) : nullptr;
  }

  bool join(OnnxNode& product, std::size_t factor_input) const {
    const OnnxNode* factor = producer(product.inputs[factor_input]);
    if (factor == nullptr) return false;
    const std::string& x = product.inputs[1 - factor_input];
    if (factor->type == "Sigmoid" && factor->input(0) == x) return replace(product, "Swish", x);
    if (factor->type == "HardSigmoid" && factor->input(0) == x && is_pytorch_hard_sigmoid(*factor)) {
      return replace(product, "HardSwish", x);
    }
    const OnnxNode* argument = factor->type == "Tanh" ? producer(factor->input(0)) : nullptr;
    if (argument != nullptr && argument->type == "Softplus" && argument->input(0) == x) {
      return replace(product, "Mish", x);
    }
    return false;
  }

  static bool replace(OnnxNode& node, const char* type, const std::string& x) {
    node.type = type;
    node.inputs = {std::string(x)};
    node.attributes.clear();
    return true;
  }

  OnnxModel& model_;
  NodeIndex index_;
};

}  // namespace

bool is_pytorch_hard_sigmoid(const OnnxNode& node) {
  constexpr float kTolerance = 1e-5F;
  const float alpha = node.real("alpha", 0.2F) - 1.0F / 6;
  return alpha < kTolerance && alpha > -kTolerance && node.real("beta", 0.5F) == 0.5F;
}

void join_swish(OnnxModel& model) { SwishJoiner(model).run(); }

}  // namespace ddp
