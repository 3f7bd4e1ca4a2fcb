// Causes that lie in the ranks and their devices: one slow rank, uneven shares, too many threads, reduced clocks.
//
//   std::vector<FoundCause> found;
//   find_stragglers(view, found);
#pragma once

#include <vector>

#include "explain/findings.h"

namespace ddp {

// A GPU whose clock is reduced because of heat or power.
void find_throttling(const RunView& view, std::vector<FoundCause>& found);
// A rank that the others wait for, or uneven shares of the batch.
void find_stragglers(const RunView& view, std::vector<FoundCause>& found);
// More threads than cores, of this job or of other programs.
void find_oversubscription(const RunView& view, std::vector<FoundCause>& found);

}  // namespace ddp
