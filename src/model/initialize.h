// Initialisation of parameters.
//
//   initialize(graph, std::nullopt, seed, flat);                                    // as in the model's source
//   initialize(graph, Initial{Initial::Kind::normal, 0.01F}, seed, flat);           // normal weights, zero biases
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "model/graph.h"

namespace ddp {

// Fills the flat buffer of all parameters; each tensor is a function of (seed, its position in the model) alone.
// `weights` overrides the initialisation of convolutions and linear layers, whose biases are then 0; batch
// normalisations always start with scale 1 and shift 0.
void initialize(const Graph& graph, const std::optional<Initial>& weights, std::uint64_t seed, std::span<float> flat);

// Fills the flat buffer of running statistics: means 0, variances 1.
void initialize_statistics(const Graph& graph, std::span<float> flat);

}  // namespace ddp
