// Signals as requests that the training loop polls between steps.
//
//   Signals signals;                             // in main, before MPI: handlers from here to the end of the scope
//   if (signals.stop_requested()) ...            // USR1, TERM or the first INT: save and leave with exit code 75
//   if (signals.take_checkpoint_request()) ...   // HUP: save and go on
//
// A second INT exits at once with code 130. Ranks may see a signal at different steps; they agree on the step at which
// to act. Outside training, stop_mode() determines who acts on a request to stop.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace ddp {

// Note [The thread that takes signals]
// A handler runs on the stack of the thread that happens to receive the signal. Some matrix kernels (among them
// oneDNN's gemm) temporarily use the stack pointer as a general register, and a signal frame would then overwrite the
// heap. Therefore compute threads block these signals, and a dedicated thread receives them.
//
//   const SignalThread thread;   // first of all in main: threads started later inherit the mask
class SignalThread {
 public:
  SignalThread();
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  std::jthread thread_;
};

// Who acts on a request to stop.
enum class StopMode {
  at_once,   // there is nothing to save: agree() (report.h) or, between agreements, the watchdog ends the program
  by_step,   // the training loop, after the running step; the watchdog if no step ends
  finished,  // none: the program is about to end
};

class Signals {
 public:
  // Throws Error(internal) if an instance exists already: signal handlers are process-wide.
  Signals();
  // Restores the previous handlers.
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // The instance of this process, or null.
  static Signals* current();

  StopMode stop_mode() const { return stop_mode_; }
  void set_stop_mode(StopMode mode) { stop_mode_ = mode; }

  bool stop_requested() const { return stop_signal_ != 0; }
  // Whether to exit now because there is nothing to save. mpirun ends a job with TERM and, a second later, KILL: under
  // mpirun a TERM counts only if no KILL follows, so that the reason for the end remains the last message.
  bool stops_at_once() const;
  // Whether the launcher has sent TERM, as mpirun does to end a job: KILL comes a second later.
  bool ended_by_launcher() const;
  // What requested the stop, "SIGUSR1", "Ctrl-C" (SIGINT from a terminal), or "" if nothing did.
  std::string_view stop_reason() const;
  // True once for each HUP, or for several together.
  bool take_checkpoint_request() { return checkpoint_wanted_.exchange(false); }

 private:
  static void handle(int number, siginfo_t* info, void* context);
  void note(int number, pid_t sender, bool from_terminal);

  static constexpr std::array kSignals = {SIGUSR1, SIGTERM, SIGINT, SIGHUP};
  std::array<struct sigaction, kSignals.size()> previous_{};
  // Read here, before MPI_Init changes the environment: the watchdog asks for it while that may go on.
  const bool under_mpirun_ = std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
  std::atomic<int> stop_signal_{0};
  std::atomic<double> stopped_at_{0};
  std::atomic<pid_t> term_sender_{0};
  std::atomic<StopMode> stop_mode_{StopMode::at_once};
  std::atomic<bool> interrupted_{false};
  std::atomic<bool> from_terminal_{false};
  std::atomic<bool> checkpoint_wanted_{false};
};

}  // namespace ddp
