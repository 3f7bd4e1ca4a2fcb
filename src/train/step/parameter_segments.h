// The parameters of a network as an optimizer sees them: ranges of the flat buffer, each with its learning rate, its
// weight decay, and the steps in which it is trained.
//
//   const std::vector<ParameterSegment> segments =
//       parameter_segments(graph, {.lr_for = {{"*.bias", 2}}, .freeze = {{"conv1.*", 3}}}, plan.steps_per_epoch);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/update/flat_update.h"
#include "model/graph.h"
#include "options/options.h"

namespace ddp {

// One segment per parameter. Factors of the options multiply those of the model, in their order. Throws Error(usage) for
// a pattern that matches no parameter.
std::vector<ParameterSegment> parameter_segments(const Graph& graph, const OptimizerOptions& options,
                                                 std::int64_t steps_per_epoch);

// Marks the parameters that no update of the run changes, which need no gradient. With `keep_statistics`, batch
// normalisations all of whose parameters are such keep their running statistics; those without parameters do if a pattern
// of --freeze matches the name of their running mean.
void freeze(Graph& graph, const OptimizerOptions& options, const std::vector<ParameterSegment>& segments,
            bool keep_statistics);

// "3 of 5 batch normalizations keep their running statistics", or "" if nothing is frozen.
std::string kept_statistics_text(const Graph& graph);

}  // namespace ddp
