// The watchdog: a thread from before MPI's start to after its end that bounds every wait.
//
//   const SignalThread signal_thread;   // first of all in main
//   Signals signals;
//   const Watchdog watchdog;            // then this
//   MpiSession session;
//
// - After 10 s without progress (base/status/heartbeat.h) it logs what this rank waits for; after rank_timeout() seconds it
//   ends the job with ExitCode::rank_lost and a line that names the rank to blame, from the pulses of all ranks
//   (job/hangs/pulse_exchange.h) or, before and after these, from /proc.
// - If a signal requests a stop and the run does not act on it, because it has not begun or hangs, it ends the job
//   with ExitCode::stopped.
//
// Time during which this process was suspended, as with the whole job, does not count.
#pragma once

#include <thread>

namespace ddp {

// The state of MPI, set by MpiSession.
enum class MpiStage { before, starting, running, ending, after };
void enter(MpiStage stage) noexcept;
MpiStage current_mpi_stage() noexcept;

class Watchdog {
 public:
  // Constructed by the main thread: only its waits count as waits for other ranks.
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::jthread thread_;
};

}  // namespace ddp
