// All-reduce between GPUs by NCCL, on a separate stream.
//
//   std::unique_ptr<DeviceCommunicator> sums = make_nccl_communicator(ranks, queue);   // called by all ranks
//
// Note [Two streams]
// all_reduce() makes the communication stream wait for an event of the backend's stream, and enqueues the sum there: it
// starts when the work enqueued so far is done and overlaps work enqueued later. join() makes the backend's stream wait
// for an event of the communication stream. Recorded into a CUDA graph, the first event is the fork and the second the
// join of a branch, so a step can be recorded if a join() follows the last sum; the graph must be destroyed before the
// communicator.
//
// Note [Which sum has not ended]
// Before each sum the communication stream copies the number of the step's sums before it to host memory. Between two
// sums this costs no time on the critical path, and it also works in a replayed graph, where events cannot be queried.
// After a failure it is the index of the first unfinished sum of the step that is running.
#pragma once

#include <memory>

#include "backend/device_context.h"
#include "comm/communicator.h"
#include "comm/sums/device_communicator.h"

namespace ddp {

// The native_stream() of `queue` must be a cudaStream_t of the current device; `queue` must outlive the
// communicator. Throws Error(preflight) on all ranks if NCCL cannot connect them.
std::unique_ptr<DeviceCommunicator> make_nccl_communicator(Communicator& ranks, const DeviceContext& device);

}  // namespace ddp
