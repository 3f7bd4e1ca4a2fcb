// Some of the ranks of a job as a communicator of their own.
//
//   std::unique_ptr<Communicator> even = make_group(ranks, {0, 2, 4});   // on these three; others form groups of their own
//   even->all_reduce(std::span(&value, 1), ReduceOp::sum);
//
// Ranks are numbered within the group, in the order of the list; errors and the watchdog name the ranks of the job. All
// ranks of the job are in exactly one of the groups that are made, or duplicated, at the same time.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace ddp {

// Collective over all ranks. `members` contains this rank, and is the same list on all its members.
std::unique_ptr<Communicator> make_group(Communicator& ranks, std::vector<int> members);

}  // namespace ddp
