#include "model/joins.h"

#include <algorithm>

namespace ddp {
namespace {

// Whether a stage reads the one before it, and no other stage reads that; as a second input it may read one before `first`.
bool reads_alone(const std::vector<Stage>& stages, std::size_t s, std::size_t first) {
  const auto reads_before = [&](const StageInput& input) { return input.stage + 1 == static_cast<int>(s); };
  const std::vector<StageInput>& inputs = stages[s].inputs;
  if (inputs.empty() || inputs.size() > 2 || inputs.front().flattens || !reads_before(inputs.front())) return false;
  if (inputs.size() == 2 && (inputs[1].flattens || inputs[1].stage >= static_cast<int>(first))) return false;
  return std::none_of(stages.begin() + static_cast<std::ptrdiff_t>(s) + 1, stages.end(), [&](const Stage& later) {
    return std::any_of(later.inputs.begin(), later.inputs.end(), reads_before);
  });
}

// Joined operators measure the statistics of their normalisations.
bool keeps_statistics(const Stage& stage) {
  const auto* norm = std::get_if<BatchNormSpec>(&stage.spec);
  return norm != nullptr && norm->frozen;
}

}  // namespace

std::size_t joined_stages(OpJoiner& ops, const std::vector<Stage>& stages, std::size_t first, Layout layout,
                          std::size_t most) {
  std::size_t joined = 1;
  std::int64_t statistics = -1;
  for (std::size_t s = first; s < std::min(first + most, stages.size()); ++s) {
    if (keeps_statistics(stages[s])) break;
    // An operator computes all of its gradients or none.
    if (s > first && (!reads_alone(stages, s, first) || stages[s].backward != stages[first].backward)) break;
    // The operator takes running statistics that lie behind one another.
    if (statistics >= 0 && stages[s].statistics >= 0 && stages[s].statistics != statistics) break;
    if (statistics < 0) statistics = stages[s].statistics;
    if (statistics >= 0) statistics += statistic_elements(stages[s].spec);
    const std::size_t count = s - first + 1;
    if (count > 1 && ops.join(specs_of(stages, first, count), layout) != nullptr) joined = count;
    // What follows would have to leave room for the second input.
    if (s > first && stages[s].inputs.size() > 1) break;
  }
  return joined;
}

std::vector<OpSpec> specs_of(const std::vector<Stage>& stages, std::size_t first, std::size_t count) {
  std::vector<OpSpec> specs;
  for (std::size_t s = first; s < first + count; ++s) specs.push_back(stages[s].spec);
  return specs;
}

}  // namespace ddp
