// Gathers the time by phase of all ranks.
//
//   PhaseClock clock;
//   std::vector<PhaseTotals> ranks = gather_phases(communicator, clock.totals());
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "metrics/phases.h"

namespace ddp {

// The totals of all ranks in the order of the ranks, on every rank. All ranks call it.
std::vector<PhaseTotals> gather_phases(Communicator& communicator, const PhaseTotals& mine);

}  // namespace ddp
