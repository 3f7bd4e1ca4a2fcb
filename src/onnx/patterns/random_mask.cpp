#include "onnx/patterns/random_mask.h"

#include "onnx/patterns/node_index.h"

namespace ddp {
namespace {

// The value behind casts.
std::string without_casts(const NodeIndex& index, std::string value) {
  constexpr int kMostCasts = 4;
  for (int i = 0; i < kMostCasts; ++i) {
    const OnnxNode* node = index.producer(value);
    if (node == nullptr || (node->type != "Cast" && node->type != "CastLike")) break;
    value = node->input(0);
  }
  return value;
}

struct Mask {
  float kept = 1;  // the probability that an element is kept
  std::string shape;
};

// The mask (r < p) / p, or nullopt.
std::optional<Mask> mask_of(const NodeIndex& index, const std::string& value) {
  const OnnxNode* quotient = index.producer(value, "Div");
  if (quotient == nullptr || quotient->inputs.size() != 2) return std::nullopt;
  const OnnxNode* less = index.producer(without_casts(index, quotient->input(0)), "Less");
  const std::optional<double> kept = index.number(quotient->input(1));
  if (less == nullptr || !kept || *kept <= 0 || *kept > 1 || index.number(less->input(1)) != kept) return std::nullopt;
  const OnnxNode* random = index.producer(less->input(0), "RandomUniformLike");
  if (random == nullptr || random->real("low", 0) != 0 || random->real("high", 1) != 1) return std::nullopt;
  const OnnxNode* empty = index.producer(without_casts(index, random->input(0)));
  if (empty == nullptr) return std::nullopt;
  if (empty->type == "ConstantOfShape") return Mask{static_cast<float>(*kept), empty->input(0)};
  if (empty->type == "Expand") return Mask{static_cast<float>(*kept), empty->input(1)};
  return std::nullopt;
}

}  // namespace

void join_random_masks(OnnxModel& model) {
  const NodeIndex index(model);
  for (OnnxNode& node : model.nodes) {
    if (node.type != "Mul" || node.inputs.size() != 2) continue;
    for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
      const std::optional<Mask> mask = mask_of(index, node.inputs[side]);
      if (!mask) continue;
      node.type = "Dropout";
      node.inputs = {std::string(node.inputs[1 - side]), "", "", mask->shape};
      node.attributes = {{"ratio", 1 - mask->kept}};
      break;
    }
  }
}

}  // namespace ddp
