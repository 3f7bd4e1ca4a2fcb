// Where the time of all ranks went, and which rank the others waited for.
//
//   time by phase               mean   of wall      longest
//     data wait               0.41 s      3.2%       0.52 s  rank 1
//     ...
//   slowest rank: 1 on host a, 1.2 s above the mean, 12% of the wall time (backward)
#pragma once

#include <span>
#include <string>

#include "metrics/phases.h"

namespace ddp {

// The rank whose own work in the steps (data wait, forward, backward, optimizer) took longest: the one the others
// wait for in exposed communication. Evaluation and checkpoints are rank 0's by design and do not count.
struct SlowestRank {
  int rank = 0;
  Phase phase = Phase::backward;  // where it loses most seconds against the mean of the ranks
  double seconds = 0;             // of own work beyond the mean
  double share = 0;               // of the wall time that these are: what the others lose by waiting for it
  // Of the wall time, what even the rank that waits least spends in exposed communication: no slow rank explains that.
  double network_share = 0;
};
SlowestRank slowest_rank(std::span<const PhaseTotals> ranks);

// The table, one line a phase, with each phase's mean over the ranks, its share of the wall time, and the rank that
// spent longest in it. `ranks` is not empty.
std::string time_table(std::span<const PhaseTotals> ranks);

// The sentence on the slowest rank, or "" for a single one. `hosts` has one name a rank.
std::string slowest_rank_text(std::span<const PhaseTotals> ranks, std::span<const std::string> hosts);

}  // namespace ddp
