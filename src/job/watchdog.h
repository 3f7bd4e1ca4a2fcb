// The watchdog: a thread from before MPI's start to after its end, which sees to it that no wait is endless.
//
//   const SignalThread signal_thread;   // first of all in main
//   Signals signals;
//   const Watchdog watchdog;            // then this
//   MpiSession session;
//
// - Where nothing moves for 10 s (base/heartbeat.h), it says what is waited for; after rank_timeout() seconds it ends
// the
//   job with ExitCode::rank_lost and a line that names the rank to blame: by the pulses of all ranks
//   (job/pulse_exchange.h) while these go on, by /proc before and after.
// - Where a signal asks for a stop and nobody acts on it, because the run has not begun or because it hangs, it ends
// the
//   job with ExitCode::stopped.
//
// Time in which this process was not awake, since the whole job was suspended, does not count.
#pragma once

#include <thread>

namespace ddp {

// How far MPI is; MpiSession tells it.
enum class MpiStage { before, starting, running, ending, after };
void enter(MpiStage stage) noexcept;
MpiStage current_mpi_stage() noexcept;

class Watchdog {
 public:
  // Made by the main thread: waits count as waits for other ranks where this thread waits for them.
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::jthread thread_;
};

}  // namespace ddp
