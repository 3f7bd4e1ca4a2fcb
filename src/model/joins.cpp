#include "model/joins.h"

#include <algorithm>

namespace ddp {
namespace {

constexpr std::size_t kMostJoined = 3;

// Whether a stage reads the one before it and nothing else, and no other stage reads that.
bool reads_alone(const std::vector<Stage>& stages, std::size_t s) {
  const auto reads_before = [&](const StageInput& input) { return input.stage + 1 == static_cast<int>(s); };
  const std::vector<StageInput>& inputs = stages[s].inputs;
  if (inputs.size() != 1 || inputs.front().flattens || !reads_before(inputs.front())) return false;
  return std::none_of(stages.begin() + static_cast<std::ptrdiff_t>(s) + 1, stages.end(), [&](const Stage& later) {
    return std::any_of(later.inputs.begin(), later.inputs.end(), reads_before);
  });
}

}  // namespace

std::size_t joined_stages(OpJoiner& ops, const std::vector<Stage>& stages, std::size_t first, Layout layout) {
  std::int64_t statistics = stages[first].statistics;
  for (std::size_t s = first; s < std::min(first + kMostJoined, stages.size()); ++s) {
    if (s > first && !reads_alone(stages, s)) return 1;
    // The operator takes running statistics that lie behind one another.
    if (stages[s].statistics >= 0 && stages[s].statistics != statistics) return 1;
    statistics += statistic_elements(stages[s].spec);
    const std::size_t count = s - first + 1;
    if (count > 1 && ops.join(specs_of(stages, first, count), layout) != nullptr) return count;
  }
  return 1;
}

std::vector<OpSpec> specs_of(const std::vector<Stage>& stages, std::size_t first, std::size_t count) {
  std::vector<OpSpec> specs;
  for (std::size_t s = first; s < first + count; ++s) specs.push_back(stages[s].spec);
  return specs;
}

}  // namespace ddp
