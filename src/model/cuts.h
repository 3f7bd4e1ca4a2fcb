// Where a network may be cut into parts that are computed one after the other, and which cuts balance them.
//
//   const std::vector<Cut> cuts = possible_cuts(graph, stages);   // one value crosses each of them
//   balanced_cuts(seconds, graph.flat_elements(), cuts, 3);         // {0, 4, 9}: the first stage of each part
//
// A part reads the output of the stage before it and nothing else, so that its neighbours exchange one activation and one
// gradient. In residual networks that excludes cuts within a block, across which the shortcut goes as well.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/partition.h"
#include "model/graph.h"
#include "model/stages.h"

namespace ddp {

struct Cut {
  std::size_t stage = 0;    // the first one behind it
  std::int64_t offset = 0;  // of its parameters in the flat buffer
  double seconds = 0;       // that each of the two parts spends on what crosses it; filled in by the caller
};

// All of them, in order.
std::vector<Cut> possible_cuts(const Graph& graph, const std::vector<Stage>& stages);

// The first stage of each of `parts` parts, such that the longest takes as little time as possible and each has parameters.
// `seconds` are those of each stage, `elements` those of the flat buffer. Empty if there are not enough cuts.
std::vector<std::size_t> balanced_cuts(std::span<const double> seconds, std::int64_t elements,
                                       std::span<const Cut> cuts, std::size_t parts);
// The most parts that have parameters each.
std::size_t most_parts(std::int64_t elements, std::span<const Cut> cuts);

// What part of a flat buffer of parameters, and of running statistics, belongs to some stages.
Range parameters_of(const Graph& graph, const std::vector<Stage>& stages, const Range& some);
Range statistics_of(const Graph& graph, const std::vector<Stage>& stages, const Range& some);

}  // namespace ddp
