// The time of all ranks by phase, and the rank that the others waited for.
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
  Phase phase = Phase::backward;  // the phase in which it exceeds the mean of the ranks most
  double seconds = 0;             // own work above the mean
  double share = 0;               // of the wall time, which the others lose waiting for it
  // The share of the wall time that even the rank with the least waiting spends in exposed communication, so that slow
  // ranks cannot be the cause.
  double network_share = 0;
};
SlowestRank slowest_rank(std::span<const PhaseTotals> ranks);

// The table, one line per phase: the mean over the ranks, its share of the wall time, and the rank that spent longest
// in it. `ranks` is not empty.
std::string time_table(std::span<const PhaseTotals> ranks);

// The mean over the ranks in one line, the longest phase first: "time by phase    backward 62%, forward 26%, ..., of 13.1
// s in all". Phases below one percent are left out.
std::string time_line(std::span<const PhaseTotals> ranks);

// The sentence on the slowest rank, or "" for a single rank. `hosts` has one name per rank, or is empty if the
// ranks have different work by design: "".
std::string slowest_rank_text(std::span<const PhaseTotals> ranks, std::span<const std::string> hosts);

}  // namespace ddp
