// Wakes ranks of the same host that sleep until a message arrives: the wait holds no core, and ends at once.
//
//   Doorbells bells(ranks);                                              // collective
//   const std::uint32_t heard = bells.heard();                           // before looking for messages
//   if (!arrived()) bells.sleep(heard, std::chrono::microseconds(250));  // less if one has rung since heard()
//   bells.ring(2);                                                       // after sending to rank 2
//
// MPI has no wait that sleeps: it makes progress only inside its calls, and its blocking calls poll. A bell is a futex in memory
// that the ranks of a host share (Drepper: "Futexes are tricky", 2011). Ranks on other hosts, or that cannot share memory with
// this one, are not woken: sleep() then takes the whole time, so choose a short one.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "comm/transport/shared_memory.h"

namespace ddp {

class Doorbells {
 public:
  // Collective over `ranks`. Where memory cannot be shared, there are no bells.
  explicit Doorbells(Communicator& ranks);

  // Wakes the threads of that rank that are in sleep(), and ends their next one at once. Does nothing for ranks without a bell.
  void ring(int rank) noexcept;

  // How often this rank's bell has rung.
  std::uint32_t heard() const noexcept;

  // Returns once the bell has rung more often than `heard`, or after `most`; whether it has rung.
  bool sleep(std::uint32_t heard, std::chrono::microseconds most) noexcept;

 private:
  struct Bell;

  SharedMemory memory_;
  std::vector<Bell*> bells_;  // of all ranks; nullptr: none
  Bell* own_ = nullptr;
};

}  // namespace ddp
