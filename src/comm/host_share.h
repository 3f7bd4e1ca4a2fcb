// Ranks of a host that keep one copy of parameters and optimizer state in memory that they share, of which each rank updates a
// part. (Optimizer state that is divided among ranks: Rajbhandari et al., "ZeRO", 2020, stage 1; here within each host.)
//
//   const std::vector<int> hosts = {0, 0, 1, 1};   // four ranks on two hosts
//   const std::unique_ptr<HostShare> share = HostShare::open(ranks, hosts, elements * sizeof(float));   // null: they cannot
//   Memory parameters = share->take(elements * sizeof(float));   // the same on all ranks of the host
//   const Range own = share->part(std::ssize(gradient));
//   ...                                                          // updates these elements of the parameters
//   share->meet();                                               // now all are up to date
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "backend/memory.h"
#include "base/partition.h"
#include "comm/communicator.h"
#include "comm/sums/reduce.h"
#include "comm/transport/shared_memory.h"

namespace ddp {

class HostShare {
 public:
  // Collective. `hosts`: a number for each rank, equal on the same host; `bytes`: of memory for take(), each piece of it
  // rounded up by aligned_bytes(). Null on all ranks if hosts have one rank or different numbers of them, or if any ranks of a
  // host cannot share memory.
  static std::unique_ptr<HostShare> open(Communicator& ranks, std::span<const int> hosts, std::size_t bytes);

  // The next bytes of the memory, zeroed. All ranks of a host take the same in the same order.
  Memory take(std::size_t bytes);
  // The elements of `count` that this rank updates: the part that SumOrder::scatter gives it of a sum.
  Range part(std::int64_t count) const { return part_of_host(rings_, count); }
  // Whether this is the first rank of its host.
  bool first() const { return rings_.local.place == 0; }
  // Whether rank 0 is on this host.
  bool first_host() const { return first_host_; }
  // Returns once all ranks of the host have called it.
  void meet();
  // The sum over the ranks of the host, the same bits on all of them.
  double sum(double value);

 private:
  HostShare(Communicator& ranks, Rings rings, std::shared_ptr<const SharedMemory> memory);

  Rings rings_;
  std::shared_ptr<const SharedMemory> memory_;
  std::unique_ptr<Communicator> local_;  // the ranks of the host
  bool first_host_;
  std::size_t taken_ = 0;
};

}  // namespace ddp
