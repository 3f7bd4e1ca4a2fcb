// Sums over GPUs by NCCL, on a stream of its own beside the backend's.
//
//   std::unique_ptr<DeviceCommunicator> sums = make_nccl_communicator(ranks, *backend);   // called by all ranks
//
// Note [Two streams]
// all_reduce() makes the communication stream wait for an event of the backend's stream, and enqueues the sum there: it
// begins when the work enqueued so far is done, beside what is enqueued later. join() makes the backend's stream wait
// for an event of the communication stream. Recorded into a CUDA graph, the first event is the fork and the second the
// join of a branch, so a step can be recorded where a join() follows the last sum; the graph must be destroyed before
// the communicator.
//
// Note [Which sum has not ended]
// Between two sums the communication stream copies the number of the sums before it to host memory. That costs no time
// on the way of a step, and works in a replayed graph, too, where events cannot be asked. After a failure it is the
// place of the first sum that has not ended.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "comm/device_communicator.h"

namespace ddp {

// `backend` is one whose native_stream() is a cudaStream_t, of the current device; it must outlive the communicator.
// Throws Error(preflight) on all ranks where NCCL cannot connect them.
std::unique_ptr<DeviceCommunicator> make_nccl_communicator(Communicator& ranks, Backend& backend);

}  // namespace ddp
