// The parameters of a network as an optimizer sees them: ranges of the flat buffer, each with its learning rate, its
// weight decay, and the steps in which it is trained.
//
//   const std::vector<ParameterSegment> segments =
//       parameter_segments(graph, {.lr_for = {{"*.bias", 2}}, .freeze = {{"conv1.*", 3}}}, plan.steps_per_epoch);
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/flat_update.h"
#include "model/graph.h"
#include "options/options.h"

namespace ddp {

// Whether the whole of `text` matches: * stands for any text, also none, and ? for one character.
bool matches(std::string_view pattern, std::string_view text);

// One segment per parameter. Factors of the options multiply those of the model, in their order. Throws Error(usage) for
// a pattern that matches no parameter.
std::vector<ParameterSegment> parameter_segments(const Graph& graph, const OptimizerOptions& options,
                                                 std::int64_t steps_per_epoch);

}  // namespace ddp
