#include "onnx/patterns/strided.h"

#include <array>
#include <optional>

#include "onnx/patterns/node_index.h"

namespace ddp {
namespace {

using Integers = std::vector<std::int64_t>;

// An addend of indices of four dimensions: `size` indices along `axis`, `stride` apart; no size: as many as samples.
struct Term {
  std::int64_t axis = 0;
  std::optional<std::int64_t> size;
  std::int64_t stride = 0;
};

// Unsqueeze(Range(0, size, 1) * stride, the other three axes)
std::optional<Term> term_of(const NodeIndex& index, const std::string& value) {
  const OnnxNode* placed = index.producer(value, "Unsqueeze");
  const OnnxNode* product = placed == nullptr ? nullptr : index.producer(placed->input(0), "Mul");
  const OnnxNode* range = product == nullptr ? nullptr : index.producer(product->input(0), "Range");
  if (range == nullptr || index.integer(range->input(0)) != 0 || index.integer(range->input(2)) != 1) {
    return std::nullopt;
  }
  const std::optional<Integers> axes = index.integers(placed->input(1));
  const std::optional<std::int64_t> stride = index.integer(product->input(1));
  if (!axes || axes->size() != 3 || !stride) return std::nullopt;
  Term term{.size = index.integer(range->input(1)), .stride = *stride};
  // The axis that is missing from the others.
  term.axis = 0 + 1 + 2 + 3;
  for (const std::int64_t axis : *axes) term.axis -= axis;
  if (term.axis < 0 || term.axis > 3) return std::nullopt;
  return term;
}

// The channels if these are the indices of all elements of [N, channels, 1, 1] in their order.
std::optional<std::int64_t> channels_in_order(const NodeIndex& index, std::string sum) {
  std::array<std::optional<Term>, 4> terms;
  // Sums of a number and four terms, the last of which is the second addend.
  for (int i = 0; i < 4; ++i) {
    const OnnxNode* node = index.producer(sum, "Add");
    const std::optional<Term> term = node == nullptr ? std::nullopt : term_of(index, node->input(1));
    if (!term) return std::nullopt;
    terms.at(static_cast<std::size_t>(term->axis)) = term;
    sum = node->input(0);
  }
  for (const std::optional<Term>& term : terms) {
    if (!term) return std::nullopt;
  }
  const std::optional<std::int64_t> channels = terms[1]->size;
  const bool in_order = channels && terms[0]->stride == *channels && terms[1]->stride == 1 && terms[2]->size == 1 &&
                        terms[3]->size == 1 && index.integer(sum) == 0;
  return in_order ? channels : std::nullopt;
}

}  // namespace

void join_strided(OnnxModel& model) {
  const NodeIndex index(model);
  for (OnnxNode& node : model.nodes) {
    if (node.type != "Gather" || node.inputs.size() != 2 || node.integer("axis", 0) != 0) continue;
    const OnnxNode* list = index.producer(node.inputs[0], "Reshape");
    if (list == nullptr || index.integers(list->input(1)) != Integers{-1}) continue;
    const std::optional<std::int64_t> channels = channels_in_order(index, node.inputs[1]);
    if (!channels) continue;
    const std::string shape = node.outputs[0] + "/shape";
    model.initializers[shape] =
        OnnxTensor::of_integers({4}, {std::int64_t{0}, *channels, std::int64_t{1}, std::int64_t{1}});
    node.type = "Reshape";
    node.inputs = {list->input(0), shape};
    node.attributes.clear();
  }
}

}  // namespace ddp
