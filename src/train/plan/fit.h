// Checks whether a run fits into device memory before anything is allocated.
//
//   check_fits(backend, graph, network_config, layout_plan, /*other_bytes=*/4 * parameter_bytes);
#pragma once

#include <cstddef>

#include "backend/backend.h"
#include "model/layout_plan.h"
#include "model/network.h"
#include "train/inputs/inputs.h"
#include "train/inputs/job.h"

namespace ddp {

// Parameters, optimizer state, the buffers of Muon's iteration, gradient buffers (one for the sum and one for each level of
// the tree over the rank's own shards), and batches: of images that are not resident, or what an epoch reads besides images
// that are.
std::size_t bytes_beside_activations(const Job& job, const Inputs& inputs, Backend& backend);

// Throws Error(out_of_memory) with the largest number of samples per shard that would fit, if the activations of
// `config` and `other_bytes` (parameters, gradients, optimizer, batches) exceed the backend's memory. Does nothing if
// the backend does not report its memory.
void check_fits(Backend& backend, const Graph& graph, const NetworkConfig& config, const LayoutPlan& plan,
                std::size_t other_bytes);

}  // namespace ddp
