// Sums over all ranks of buffers in a backend's memory, in the order of its work: the same interface for host memory
// and for GPUs.
//
//   std::unique_ptr<DeviceCommunicator> sums = make_message_communicator(ranks, backend, {Reduction::ring});
//   sums->all_reduce(gradient + begin, count);   // after backward's work so far; returns at once
//   ...                                          // more of backward is enqueued and runs meanwhile
//   sums->join();                                // work enqueued from here on sees the sums
//   sums->wait("step 7");                        // the host waits for everything; a silent rank is an error
//
// There are three implementations: NCCL (comm/nccl), messages from host memory on a thread of their own, and messages
// staged through the host's memory. The last two share the orders of additions (message_sums.h).
//
// All ranks call the same operations in the same order, with the same sizes. Memory that was given to a sum belongs to
// it until join(). After an error only ending the job is left.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "comm/reduce.h"

namespace ddp {

// The order of additions, the same on all ranks.
struct SumOrder {
  Reduction algorithm = Reduction::ring;
  int shards = 1;  // logical shards over all ranks, at least one per rank; read by Reduction::tree
};

// When a sum is made.
enum class Start {
  now,      // beside work that is enqueued later
  at_join,  // join() follows at once: there is nothing to overlap with, and a thread switch would be wasted
};

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
  // Whether a sum with Start::now proceeds beside later work of the backend.
  virtual bool overlaps() const = 0;

  // Replaces partials[0] by the sum over all ranks of `count` floats, the same bits on all of them. With
  // Reduction::tree these are the rank's partial sums of shard_tree.h, whose memory is overwritten; else there
  // is one.
  virtual void all_reduce(std::span<float* const> partials, std::size_t count, Start start) = 0;
  // Replaces `values` by their sums in bfloat16: half the bytes, and three digits. Reduction::ring only.
  virtual void all_reduce(Bf16* values, std::size_t count, Start start) = 0;
  // Replaces a few values by their sums; join() follows at once.
  virtual void all_reduce(double* values, std::size_t count) = 0;
  // The backend's later work waits for the sums begun so far.
  virtual void join() = 0;
  // The host waits until all enqueued work and sums are done. Throws Error(rank_lost) that names `what` and the rank
  // after the timeout without an end, or when the transport reports an error.
  virtual void wait(const std::string& what) = 0;

  void all_reduce(float* values, std::size_t count, Start start = Start::now) {
    all_reduce(std::span<float* const>(&values, 1), count, start);
  }
};

// By messages of `ranks`, which is duplicated: from the backend's memory itself where that is the host's, else staged.
// One rank has nothing to add, and its steps can be recorded.
std::unique_ptr<DeviceCommunicator> make_message_communicator(Communicator& ranks, Backend& backend,
                                                              const SumOrder& order = {});

// From host memory. A thread makes the sums that begin before their join(), beside the backend's work; it starts with
// the first of them.
std::unique_ptr<DeviceCommunicator> make_host_communicator(Communicator& ranks, Backend& backend,
                                                           const SumOrder& order = {});

// Through the host's memory, whatever the backend: for more ranks than GPUs, for fixed orders of additions on GPUs, and
// for tests. Sums are made in join().
std::unique_ptr<DeviceCommunicator> make_staged_communicator(Communicator& ranks, Backend& backend,
                                                             const SumOrder& order = {});

}  // namespace ddp
