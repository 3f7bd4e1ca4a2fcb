// Initialisation of parameters.
//
//   initialize(graph, std::nullopt, seed, flat);                                    // as the model's source does
//   initialize(graph, Initial{Initial::Kind::normal, 0.01F}, seed, flat);           // weights so, biases 0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "model/graph.h"

namespace ddp {

// Fills the flat buffer of all parameters; each tensor is a function of (seed, its place in the model) alone. `weights`
// says how the weights of convolutions and linear layers begin, their biases being 0 then; batch normalisations always
// begin as 1 and 0.
void initialize(const Graph& graph, const std::optional<Initial>& weights, std::uint64_t seed, std::span<float> flat);

// Fills the flat buffer of running statistics: means 0, variances 1.
void initialize_statistics(const Graph& graph, std::span<float> flat);

}  // namespace ddp
