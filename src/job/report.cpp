#include "job/report.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/text/text.h"
#include "base/threads.h"
#include "job/exchange.h"
#include "job/hangs/pulse_exchange.h"
#include "job/hangs/watchdog.h"
#include "job/launch/launcher.h"
#include "job/signals.h"

namespace ddp {
namespace {

// Waits until everything written to standard error has been read from its pipe, because MPI_Abort may discard the rest.
void drain_standard_error() {
  std::fflush(stderr);
  const double begin = now();
  int unread = 0;
  while (now() - begin < 1 && ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The message of an error that another rank reports, or nothing.
std::string untold(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const JointError& joint) {
    return joint.reporter() ? "" : joint.what();
  } catch (...) {
    return "";
  }
}

int exit_value(ExitCode code) { return static_cast<int>(code); }

std::string output_failure(int error) {
  return fmt::format("cannot write to standard output: {}; free disk space or redirect it elsewhere",
                     error != 0 ? errno_text(error) : "an earlier write failed");
}

// Standard output is the result of commands like eval: a full disk must not lead to missing output with exit code 0.
void flush_standard_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw Error(ExitCode::checkpoint, output_failure(errno));
}

// The outcome of a phase as text: "CODE MESSAGE", or empty on success.
std::string outcome_text(const std::exception_ptr& mine) {
  if (!mine) {
    const Signals* const signals = Signals::current();
    if (signals == nullptr || !signals->stops_at_once()) return "";
    return fmt::format("{} stopped by {}; there was nothing to save", exit_value(ExitCode::stopped),
                       signals->stop_reason());
  }
  const Failure failure = describe_failure(mine);
  return fmt::format("{} {}", exit_value(failure.code), failure.message);
}

constexpr auto kNoThread = std::errc::resource_unavailable_try_again;

// A library has called exit(). OpenMP does so where it cannot start a thread: it ends those that an operator does not use, and
// others may take their place.
void explain_exit() {
  const MpiStage stage = current_mpi_stage();
  if ((stage != MpiStage::starting && stage != MpiStage::running) || startable_threads(1) > 0) return;
  log_error("{}", no_thread_text("OpenMP or MPI", std::make_error_code(kNoThread)));
  end_all_ranks(exit_value(ExitCode::preflight));
}

// What MPI needs, and the exchange of pulses.
void check_threads_of_mpi() {
  const int needed = has_launcher(process_environment()) ? 4 : 2;
  if (startable_threads(needed) < needed) no_thread("MPI", std::make_error_code(kNoThread));
}

}  // namespace

Failure describe_failure(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return {known.code(), known.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::out_of_memory, "out of memory; use a smaller batch, or fewer ranks on this host"};
  } catch (const std::system_error& failed) {
    // print_text() throws if a text that does not fit the buffer cannot be written.
    if (std::ferror(stdout) != 0) return {ExitCode::checkpoint, output_failure(failed.code().value())};
    if (failed.code() == kNoThread) {
      return {ExitCode::preflight, no_thread_text("this run", failed.code())};
    }
    return {ExitCode::internal, fmt::format("internal error: {}; please report it", one_line(failed.what()))};
  } catch (const std::exception& other) {
    return {ExitCode::internal, fmt::format("internal error: {}; please report it", one_line(other.what()))};
  } catch (...) {
    return {ExitCode::internal, "internal error: an exception of unknown type; please report it"};
  }
}

void agree(const MpiSession& session, const std::exception_ptr& mine, double timeout) {
  if (mine) {
    try {
      std::rethrow_exception(mine);
    } catch (const JointError&) {
      throw;
    } catch (...) {
      // The failure of this rank, which the others do not know yet.
    }
  }
  const std::vector<std::string> outcomes =
      all_gather_text(session, outcome_text(mine), timeout, "the agreement of all ranks at the end of a setup phase");
  const auto failed = [](const std::string& outcome) { return !outcome.empty(); };
  const auto first = std::find_if(outcomes.begin(), outcomes.end(), failed);
  if (first == outcomes.end()) return;

  int code = 0;
  const char* const end = std::from_chars(first->data(), first->data() + first->size(), code).ptr;
  std::string message(end + 1, first->data() + first->size());
  const auto others =
      std::count_if(outcomes.begin(), outcomes.end(), [&](const auto& it) { return failed(it) && it != *first; });
  if (others > 0 && code != exit_value(ExitCode::stopped))
    message += fmt::format(" (and {})", counted(static_cast<std::uint64_t>(others), "other rank"));
  const bool stops = code == exit_value(ExitCode::stopped);
  // A requested stop is not an error: rank 0 reports it, without a rank number or the word "error".
  const auto reporter = stops ? 0 : first - outcomes.begin();
  throw JointError(static_cast<ExitCode>(code), message, session.rank() == reporter);
}

void report_and_abort(const MpiSession& session, const std::exception_ptr& error) noexcept {
  int code = exit_value(ExitCode::internal);
  try {
    const Failure failure = describe_failure(error);
    code = exit_value(failure.code);
    log_error("{}", failure.message);
    drain_standard_error();
  } catch (...) {
    // Not enough memory for the message; only the exit code reports the error.
    code = exit_value(ExitCode::out_of_memory);
  }
  session.abort(code);
}

int run_program(const std::function<int(MpiSession& session)>& body, const std::function<void()>& before_mpi) {
  const auto report = [](const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const JointError& joint) {
      if (joint.reporter()) {
        log_line(joint.code() == ExitCode::stopped ? LogLevel::info : LogLevel::error, joint.what());
      }
      return exit_value(joint.code());
    } catch (...) {
      const Failure failure = describe_failure(error);
      log_error("{}", failure.message);
      return exit_value(failure.code);
    }
  };
  // Exceeding the file size limit then makes the write fail, which is reported, instead of killing the process.
  (void)std::signal(SIGXFSZ, SIG_IGN);
  std::optional<SignalThread> signal_thread;
  std::optional<Signals> signals;
  std::optional<Watchdog> watchdog;
  try {
    signal_thread.emplace();
    signals.emplace();
    watchdog.emplace();
    before_mpi();
    check_threads_of_mpi();
    static const int registered = std::atexit(explain_exit);
    static_cast<void>(registered);
    MpiSession session;
    PulseExchange pulses(session);
    const auto leave = [&](int code, const std::string& why = "") {
      signals->set_stop_mode(StopMode::finished);
      or_abort(session, [&] { pulses.close(why); });
      return code;
    };
    try {
      return leave(or_abort(session, [&] {
        const int code = body(session);
        flush_standard_output();
        // Only now, so that a bad input still gets one line.
        if (const std::string removed = session.removed(); !removed.empty()) log_info("{}", removed);
        return code;
      }));
    } catch (...) {
      // Before MPI_Finalize, because mpirun may kill the other ranks as soon as one has exited with an error.
      const int code = report(std::current_exception());
      drain_standard_error();
      return leave(code, untold(std::current_exception()));
    }
  } catch (...) {
    return report(std::current_exception());
  }
}

}  // namespace ddp
