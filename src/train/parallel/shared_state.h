// Whether the ranks of a host share parameters and optimizer state (comm/host_share.h), and what each of them updates then.
//
//   const std::unique_ptr<HostShare> share = share_state(ranks, device, graph, options.optimizer);   // null: they cannot
//   const std::vector<Range> own = updated_ranges(sum_settings);
//   const std::vector<ParameterSegment> updated =        // by this rank's optimizer
//       segments_within(parameter_segments(graph, options.optimizer, plan.steps_per_epoch), own);
//
// Note [Updates of a part]
// Without sharing, each rank receives the whole sum of the gradients and updates all parameters. On the cores of a host this
// costs each rank as much memory traffic as a single one, however small its share of the batch. With sharing a rank adds and
// updates its part of each bucket only, in the memory that all of them read (the fixed tree adds all). Rules that update each
// element by itself allow this, with the same bits.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/update/flat_update.h"
#include "base/partition.h"
#include "comm/communicator.h"
#include "comm/host_share.h"
#include "machine/device.h"
#include "model/graph.h"
#include "options/options.h"

namespace ddp {

// Whether the rules of the update and the sums permit it. The network must be whole on each of several ranks.
bool may_share_state(const Options& options, const Device& device);

// Collective; on all ranks null or on none. The memory is that of the parameters and the optimizer state.
std::unique_ptr<HostShare> share_state(Communicator& ranks, const Device& device, const Graph& graph,
                                       const OptimizerOptions& options);

// What the ranges contain of these segments; both in the order of the buffer.
std::vector<ParameterSegment> segments_within(std::span<const ParameterSegment> segments,
                                              std::span<const Range> ranges);

}  // namespace ddp
