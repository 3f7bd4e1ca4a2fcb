#include "onnx/patterns/adaptive.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>

#include "onnx/patterns/node_index.h"

namespace ddp {
namespace {

using Integers = std::vector<std::int64_t>;

// The pooling of one dimension.
struct Pooled {
  std::int64_t size = 0;
  std::int64_t results = 0;
};

// Range(0, results, 1) * size, from which the first indices of windows are computed by a division.
std::optional<Pooled> dividend_of(const NodeIndex& index, const std::string& value) {
  const OnnxNode* product = index.producer(value, "Mul");
  const OnnxNode* range = product == nullptr ? nullptr : index.producer(product->input(0), "Range");
  if (range == nullptr || index.integer(range->input(0)) != 0 || index.integer(range->input(2)) != 1) {
    return std::nullopt;
  }
  const std::optional<std::int64_t> results = index.integer(range->input(1));
  const std::optional<std::int64_t> size = index.integer(product->input(1));
  if (!results || !size || *results < 1 || *size < 1) return std::nullopt;
  return Pooled{*size, *results};
}

// Floor(Range * size / results), by way of real numbers of either sign.
std::optional<Pooled> quotient_of(const NodeIndex& index, const std::string& value) {
  const OnnxNode* whole = index.producer(value, "CastLike");
  if (whole == nullptr) return std::nullopt;
  const std::optional<Pooled> dividend = dividend_of(index, whole->input(1));
  const OnnxNode* with_sign = index.producer(whole->input(0), "Mul");
  const OnnxNode* floor = with_sign == nullptr ? nullptr : index.producer(with_sign->input(0), "Floor");
  const OnnxNode* absolute = floor == nullptr ? nullptr : index.producer(floor->input(0), "Abs");
  const OnnxNode* quotient = absolute == nullptr ? nullptr : index.producer(absolute->input(0), "Div");
  if (!dividend || quotient == nullptr) return std::nullopt;
  if (index.integer(quotient->input(1)) != dividend->results) return std::nullopt;
  return dividend;
}

// The indices of all windows along one dimension: the first of each, plus 0, 1 ..., at most the last of the image.
std::optional<Pooled> windows_of(const NodeIndex& index, std::string value) {
  for (;;) {
    const OnnxNode* node = index.producer(value);
    if (node == nullptr) return std::nullopt;
    if (node->type == "Add") {
      const OnnxNode* first = index.producer(node->input(0), "Unsqueeze");
      return first == nullptr ? std::nullopt : quotient_of(index, first->input(0));
    }
    if (node->type != "Unsqueeze" && node->type != "Expand" && node->type != "Min") return std::nullopt;
    value = node->input(0);
  }
}

// The last of the nodes that average what a GatherND selects; null if they do something else. `nodes` are in the order
// of computation.
OnnxNode* mean_of(const NodeIndex& index, std::vector<OnnxNode>& nodes, const std::string& selected) {
  std::set<std::string> parts = {selected};
  for (OnnxNode& node : nodes) {
    const auto part = std::find_if(node.inputs.begin(), node.inputs.end(),
                                   [&](const std::string& input) { return parts.contains(input); });
    if (part == node.inputs.end()) continue;
    const auto place = part - node.inputs.begin();
    if (node.type == "CastLike" && place == 1) continue;
    if (node.type == "ReduceMean") return index.integers(node.input(1)) == Integers{-3, -1} ? &node : nullptr;
    if (node.type == "Div") return place == 0 ? &node : nullptr;
    const bool keeps = node.type == "Add" || (node.type == "Transpose" && place == 0) ||
                       (node.type == "Gather" && place == 0) || (node.type == "Where" && place == 2);
    if (!keeps) return nullptr;
    parts.insert(node.outputs[0]);
  }
  return nullptr;
}

void replace(OnnxNode& node, const std::string& image, const Pooled& rows, const Pooled& columns) {
  node.type = "AdaptiveAveragePool";
  node.inputs = {image};
  node.attributes = {{"input", Integers{rows.size, columns.size}}, {"output", Integers{rows.results, columns.results}}};
}

void join_gathered(const NodeIndex& index, OnnxModel& model) {
  for (const OnnxNode& node : model.nodes) {
    if (node.type != "GatherND") continue;
    const OnnxNode* image = index.producer(node.input(0), "Transpose");
    const OnnxNode* places = index.producer(node.input(1), "Concat");
    if (image == nullptr || places == nullptr || places->inputs.size() != 2) continue;
    if (image->integers("perm", {}) != Integers{2, 3, 0, 1}) continue;
    const std::optional<Pooled> rows = windows_of(index, places->inputs[0]);
    const std::optional<Pooled> columns = windows_of(index, places->inputs[1]);
    OnnxNode* mean = mean_of(index, model.nodes, node.outputs[0]);
    if (rows && columns && mean != nullptr) replace(*mean, image->input(0), *rows, *columns);
  }
}

// A matrix of averages: [results][size], or transposed.
std::optional<Pooled> matrix_of(const OnnxModel& model, const std::string& value, bool transposed) {
  const auto found = model.initializers.find(value);
  if (found == model.initializers.end() || found->second.shape.size() != 2) return std::nullopt;
  const OnnxTensor& tensor = found->second;
  const Pooled pooled{tensor.shape[transposed ? 0 : 1], tensor.shape[transposed ? 1 : 0]};
  if (std::min(pooled.size, pooled.results) < 1 || tensor.reals.size() != static_cast<std::size_t>(tensor.elements())) {
    return std::nullopt;
  }
  constexpr float kRounding = 1e-6F;
  const std::vector<float> wanted = averaging_matrix(pooled.size, pooled.results);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto size = static_cast<std::size_t>(pooled.size);
    const std::size_t at = transposed ? i % size * static_cast<std::size_t>(pooled.results) + i / size : i;
    if (!(std::abs(tensor.reals[at] - wanted[i]) <= kRounding)) return std::nullopt;
  }
  return pooled;
}

void join_products(const NodeIndex& index, OnnxModel& model) {
  for (OnnxNode& node : model.nodes) {
    if (node.type != "MatMul" || node.inputs.size() != 2) continue;
    const OnnxNode* left = index.producer(node.inputs[0], "MatMul");
    if (left == nullptr || left->inputs.size() != 2) continue;
    const std::optional<Pooled> rows = matrix_of(model, left->inputs[0], /*transposed=*/false);
    const std::optional<Pooled> columns = matrix_of(model, node.inputs[1], /*transposed=*/true);
    if (rows && columns) replace(node, left->inputs[1], *rows, *columns);
  }
}

}  // namespace

void join_adaptive_pools(OnnxModel& model) {
  const NodeIndex index(model);
  join_gathered(index, model);
  join_products(index, model);
}

std::vector<float> averaging_matrix(std::int64_t size, std::int64_t results) {
  std::vector<float> matrix(static_cast<std::size_t>(size * results), 0.0F);
  for (std::int64_t i = 0; i < results; ++i) {
    const std::int64_t first = i * size / results;
    const std::int64_t last = ((i + 1) * size + results - 1) / results;
    std::fill(matrix.begin() + i * size + first, matrix.begin() + i * size + last,
              1.0F / static_cast<float>(last - first));
  }
  return matrix;
}

}  // namespace ddp
