// What tests see of the stand-in for NCCL: sums by the messages of a Communicator, and faults on request.
//
//   prepare_nccl(ranks.duplicate(), {.silent_sum = 2});      // this rank never comes to its third sum
//   const auto sums = make_nccl_communicator(ranks, queue);
//
// As in NCCL, connecting and parting are done by other threads while callers poll; a sum may be accepted and reach its
// stream only when the caller has polled (every second one does); a failed sum holds its stream until it is aborted;
// and a communicator ends only when no graph has a sum of it.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>

#include "comm/communicator.h"

namespace ddp::testing {

inline constexpr std::size_t kNoSum = std::numeric_limits<std::size_t>::max();

// What goes wrong on a rank.
struct NcclFaults {
  ncclResult_t id = ncclSuccess;       // of ncclGetUniqueId
  ncclResult_t begin = ncclSuccess;    // of ncclCommInitRankConfig
  ncclResult_t connect = ncclSuccess;  // what connecting ends with
  bool connects_never = false;
  std::size_t refused_sum = kNoSum;  // the call of this sum, counted from 0, is an error
  std::size_t silent_sum = kNoSum;   // this rank never comes to it
  std::size_t broken_sum = kNoSum;   // fails while it runs
};

// The messages and faults of the next communicator that this thread makes.
void prepare_nccl(std::unique_ptr<Communicator> messages, NcclFaults faults = {});

// Of all communicators of this process.
struct NcclCounts {
  int made = 0;
  int destroyed = 0;  // in peace
  int aborted = 0;
};
NcclCounts nccl_counts();

// How many sums have ended on the communicator that this thread made last: a function for any thread.
std::function<std::size_t()> nccl_sums_ended();

}  // namespace ddp::testing
