// All-reduce of buffers in a backend's memory, ordered by its queue: one interface for host memory and GPUs.
//
//   std::unique_ptr<DeviceCommunicator> sums = make_message_communicator(ranks, backend.device(), {Reduction::ring});
//   sums->all_reduce(gradient.data() + begin, count);   // after backward's work so far; returns at once
//   ...                                          // more of backward is enqueued and runs concurrently
//   sums->join();                                // work enqueued from here on sees the sums
//   sums->wait("step 7");                        // the host waits; a rank that does not respond is an error
//
// There are three implementations: NCCL (comm/nccl), messages from host memory on a separate thread, and messages
// staged through host memory. The last two share the reduction algorithms (message_sums.h).
//
// All ranks call the same operations in the same order, with the same sizes. The memory of a sum must not be accessed
// until join(). After an error the job must end.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "backend/device_context.h"
#include "backend/tensor.h"
#include "comm/communicator.h"
#include "comm/sums/reduce.h"

namespace ddp {

// The reduction algorithm, the same on all ranks.
struct SumOrder {
  Reduction algorithm = Reduction::ring;
  int shards = 1;  // logical shards over all ranks, at least one per rank; read by Reduction::tree
  std::vector<std::int64_t> shard_counts = {};  // shards of each rank; empty: as many for each, up to one
  std::vector<int> hosts = {};                  // of each rank, for Reduction::ring (plan_rings()); empty: all on one
  // Each rank gets only its part of a sum of gradients: of those on its host, the one that HostShare::part() says.
  // Reduction::ring only, by messages from host memory.
  bool scatter = false;
  bool one_ring_if_uneven = false;  // plan_rings()
};

// When a sum is computed.
enum class Start {
  now,      // concurrently with work that is enqueued later
  at_join,  // join() follows at once: nothing to overlap with, so a thread switch would only cost time
};

// When a sum of a step was started by the caller, when its computation began, and when it was done; base/clock.h.
struct SumTimes {
  double started = 0;
  double begun = 0;
  double done = 0;
};

class DeviceCommunicator {
 public:
  DeviceCommunicator() = default;
  DeviceCommunicator(const DeviceCommunicator&) = delete;
  DeviceCommunicator& operator=(const DeviceCommunicator&) = delete;
  virtual ~DeviceCommunicator() = default;

  // For the log header: "NCCL 2.28.9" or "MPI through the host".
  virtual std::string description() const = 0;
  // Whether these sums can be captured in a Recording.
  virtual bool recordable() const = 0;
  // Whether a sum with Start::now overlaps later work of the backend.
  virtual bool overlaps() const = 0;

  // Collective: zeroed device memory for values that are summed in each step. The ranks of a host
  // sum those in place, where they can share memory.
  virtual Memory allocate(DeviceMemory& memory, std::size_t bytes, const std::string& purpose) {
    return memory.allocate(bytes, purpose);
  }

  // Replaces partials[0] by the sum over all ranks of `count` floats, bit-identical on all ranks. With Reduction::tree
  // `partials` are the rank's partial sums of shard_tree.h, whose memory is overwritten; otherwise there is one.
  virtual void all_reduce(std::span<float* const> partials, std::size_t count, Start start) = 0;
  // Replaces `values` by their sums in bfloat16: half the traffic, three significant digits. Reduction::ring only.
  virtual void all_reduce(Bf16* values, std::size_t count, Start start) = 0;
  // Replaces a few values by their sums; join() follows at once.
  virtual void all_reduce(double* values, std::size_t count) = 0;
  // Later work of the backend waits for the sums started so far.
  virtual void join() = 0;
  // The host waits until all enqueued work and sums are done. Throws Error(rank_lost) naming `what` and the rank if
  // they do not finish before the timeout, or if the transport reports an error.
  virtual void wait(const std::string& what) = 0;
  // The same for the work before this event of the queue, while later work may be enqueued already.
  virtual void wait_for(DeviceEvent& event, const std::string& what) = 0;

  // The times of the sums of floats between the last two join(), in their order, until the next sum is started; empty if
  // the host does not compute them.
  virtual std::span<const SumTimes> sum_times() const { return {}; }

  void all_reduce(float* values, std::size_t count, Start start = Start::now) {
    all_reduce(std::span<float* const>(&values, 1), count, start);
  }
};

// Sums by messages over a duplicate of `ranks`, directly from the backend's memory if that is host memory, otherwise
// staged. With a single rank nothing is sent, and steps can be recorded.
std::unique_ptr<DeviceCommunicator> make_message_communicator(Communicator& ranks, const DeviceContext& device,
                                                              const SumOrder& order = {});

// From host memory. A thread, started by the first such sum, computes sums with Start::now concurrently with the
// backend's work.
std::unique_ptr<DeviceCommunicator> make_host_communicator(Communicator& ranks, const DeviceContext& device,
                                                           const SumOrder& order = {});

// Staged through host memory for any backend: for more ranks than GPUs, for deterministic reductions on GPUs, and for
// tests. Sums are computed in join().
std::unique_ptr<DeviceCommunicator> make_staged_communicator(Communicator& ranks, const DeviceContext& device,
                                                             const SumOrder& order = {});

}  // namespace ddp
