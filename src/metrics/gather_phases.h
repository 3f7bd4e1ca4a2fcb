// Gathers the time by phase of all ranks.
//
//   PhaseClock clock;
//   std::vector<PhaseTotals> ranks = gather_phases(communicator, clock.totals());
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "metrics/phases.h"

namespace ddp {

// Collective: on rank 0 the totals of all ranks, in rank order; nothing on the others.
std::vector<PhaseTotals> gather_phases(Communicator& communicator, const PhaseTotals& mine);

}  // namespace ddp
