// Ranks as threads of one process, for tests: the same communicator, without mpirun.
//
//   run_as_threads(4, [](Communicator& ranks) {
//     double value = ranks.rank();
//     ranks.all_reduce(std::span(&value, 1), ReduceOp::sum);   // 6 on every rank
//   });
//
// A send returns only when its message has been received, as MPI permits, so code that works here does not rely on
// buffering.
#pragma once

#include <functional>

#include "comm/communicator.h"

namespace ddp {

// Runs `body` once per rank, each on its own thread, and returns when all have returned. If one throws, the others'
// waits throw Error(ExitCode::rank_lost) naming it, and the first exception is thrown here. A wait for a rank whose
// body has returned throws likewise.
void run_as_threads(int ranks, const std::function<void(Communicator&)>& body, double timeout_seconds = 60);

}  // namespace ddp
