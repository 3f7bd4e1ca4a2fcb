// Causes that lie in the ranks and their devices: one slow rank, uneven shares, too many threads, reduced clocks.
//
//   std::vector<FoundCause> found;
//   find_stragglers(view, found);
#pragma once

#include <vector>

#include "explain/findings.h"

namespace ddp {

// Whether the threads of the slowest rank wait for a core, and those of the other ranks do not.
bool slowest_lacks_core(const RunView& view);
// Whether all ranks are on one host and their threads wait for its cores, and so do the sums of gradients.
bool sums_lack_cores(const RunView& view);
// A rank whose loader is slower than those of the others.
bool one_slow_loader(const RunView& view);
// A GPU whose clock is reduced because of heat or power.
void find_throttling(const RunView& view, std::vector<FoundCause>& found);
// A rank that the others wait for, or uneven shares of the batch.
void find_stragglers(const RunView& view, std::vector<FoundCause>& found);
// More threads than cores, of this job or of other programs.
void find_oversubscription(const RunView& view, std::vector<FoundCause>& found);

}  // namespace ddp
