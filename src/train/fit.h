// Whether a run fits its device's memory, asked before any of it is taken.
//
//   check_fits(backend, graph, network_config, plan, /*other_bytes=*/4 * parameter_bytes);
#pragma once

#include <cstddef>

#include "backend/backend.h"
#include "model/layout_plan.h"
#include "model/network.h"

namespace ddp {

// Throws Error(out_of_memory) with the largest number of samples a shard that would fit, where the activations of
// `config` and `other_bytes` (parameters, gradients, optimizer, messages) are more than the backend has. Says nothing
// where the backend does not know what it has.
void check_fits(Backend& backend, const Graph& graph, const NetworkConfig& config, const LayoutPlan& plan,
                std::size_t other_bytes);

}  // namespace ddp
