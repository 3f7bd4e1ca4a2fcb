// Sums over all ranks of buffers in device memory, in the order of a backend's work.
//
//   std::unique_ptr<DeviceCommunicator> sums = make_staged_communicator(ranks, backend);
//   sums->all_reduce(gradient + begin, count);   // after backward's work so far; returns at once
//   ...                                          // more of backward is enqueued and runs meanwhile
//   sums->join();                                // what is enqueued from here on sees the sums
//   sums->wait("step 7");                        // the host waits for everything; a silent rank is an error
//
// All ranks call the same operations in the same order, with the same sizes.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "comm/communicator.h"

namespace ddp {

class DeviceCommunicator {
 public:
  DeviceCommunicator() = default;
  DeviceCommunicator(const DeviceCommunicator&) = delete;
  DeviceCommunicator& operator=(const DeviceCommunicator&) = delete;
  virtual ~DeviceCommunicator() = default;

  // For the header: "NCCL 2.28.9" or "MPI through the host".
  virtual std::string description() const = 0;
  // Whether these sums can be part of a Recording.
  virtual bool recordable() const = 0;

  // Replaces `values` by their sums over all ranks, in place, the same bits on all of them.
  virtual void all_reduce(float* values, std::size_t count) = 0;
  virtual void all_reduce(double* values, std::size_t count) = 0;
  // Sums of numbers in bfloat16, in bfloat16: half the bytes, and three digits.
  virtual void all_reduce(Bf16* values, std::size_t count) = 0;
  // The backend's later work waits for the sums begun so far.
  virtual void join() = 0;
  // The host waits until all enqueued work and sums are done. Throws Error(rank_lost) that names `what` and the rank
  // after the timeout without an end, or when the transport reports an error; then only ending the job is left.
  virtual void wait(const std::string& what) = 0;
};

// Through the host's memory by messages of `ranks`: for more ranks than GPUs, and for tests. `ranks` is duplicated.
std::unique_ptr<DeviceCommunicator> make_staged_communicator(Communicator& ranks, Backend& backend);

}  // namespace ddp
