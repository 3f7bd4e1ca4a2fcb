// Test interface of the NCCL stand-in, which sums by messages of a Communicator and injects faults on request.
//
//   prepare_nccl(ranks.duplicate(), {.silent_sum = 2});      // this rank never reaches its third sum
//   const auto sums = make_nccl_communicator(ranks, queue);
//
// As in NCCL, communicators are connected and destroyed by other threads while callers poll; an accepted sum may be
// enqueued on its stream only after further polls (here: every second sum); a failed sum blocks its stream until it is
// aborted; and a communicator is not destroyed while a graph contains one of its sums.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>

#include "comm/communicator.h"

namespace ddp::testing {

inline constexpr std::size_t kNoSum = std::numeric_limits<std::size_t>::max();

// The faults of one rank.
struct NcclFaults {
  ncclResult_t id = ncclSuccess;       // of ncclGetUniqueId
  ncclResult_t begin = ncclSuccess;    // of ncclCommInitRankConfig
  ncclResult_t connect = ncclSuccess;  // result of connecting
  bool connects_never = false;
  std::size_t refused_sum = kNoSum;  // index of the sum whose call returns an error
  std::size_t silent_sum = kNoSum;   // index of the sum that this rank never reaches
  std::size_t broken_sum = kNoSum;   // index of the sum that fails while it runs
};

// Sets the messages and faults of the next communicator that this thread creates.
void prepare_nccl(std::unique_ptr<Communicator> messages, NcclFaults faults = {});

// Counts over all communicators of this process.
struct NcclCounts {
  int made = 0;
  int destroyed = 0;  // without abort
  int aborted = 0;
};
NcclCounts nccl_counts();

// Returns a function, callable from any thread, that counts the completed sums of this thread's latest communicator.
std::function<std::size_t()> nccl_sums_ended();

}  // namespace ddp::testing
