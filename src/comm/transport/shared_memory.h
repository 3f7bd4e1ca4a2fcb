// Memory of the ranks of a host that each of them reads and writes: a block of every rank, of the size that it wants.
//
//   const SharedMemory shared(ranks, elements * sizeof(float));   // collective
//   std::span<std::byte> own = shared.of(ranks.rank());           // zeroed, resident; empty if memory cannot be shared
//   std::span<std::byte> theirs = shared.of(3);                   // empty if that rank is on another host
//
// Whoever reads what another rank writes waits for it first, for example for a message. The memory is a file without a name
// that goes with its last user, so that nothing is left behind.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace ddp {

class SharedMemory {
 public:
  // Collective. Ranks that cannot open each other's memory, for example in different containers, have none in common.
  SharedMemory(Communicator& ranks, std::size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Page-aligned.
  std::span<std::byte> of(int rank) const { return blocks_[static_cast<std::size_t>(rank)]; }

 private:
  void open(Communicator& ranks, std::size_t bytes);

  std::span<std::byte> memory_;  // of all ranks of the host
  std::vector<std::span<std::byte>> blocks_;
};

}  // namespace ddp
