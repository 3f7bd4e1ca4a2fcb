// How soon a thread gets a core that it shares with others.
//
//   shorten_time_slice(std::chrono::microseconds(100));   // of the calling thread
//
// From Linux 6.6 on, a thread that wakes up preempts the one that runs only if its time slice would end before the other's (the
// EEVDF scheduler; Stoica and Abdel-Wahab, 1995). With slices of equal length, that of the other one has to end first: up to 3 ms.
// A thread that often waits, and works for a short time when it wakes up, therefore asks for a short slice; its share of the core
// remains the same. Linux 6.12 and later have this option; on others nothing changes, and older ones preempt soon anyway.
#pragma once

#include <chrono>

namespace ddp {

// Does nothing where the kernel does not permit it.
void shorten_time_slice(std::chrono::nanoseconds slice) noexcept;

}  // namespace ddp
