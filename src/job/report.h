// Turns an error on any rank into one line on standard error and the exit code of the whole job.
//
//   run_program([&](const MpiSession& session) {
//     std::string text = together(session, [&] { return read_text(path, ExitCode::data); });   // on all ranks or none
//     or_abort(session, [&] { work(); });   // an error on one rank ends all ranks
//     return 0;
//   }, [] {});
//
// During setup every rank reaches the end of a phase and reports its outcome; if any failed, all exit in order with the
// same exit code, and the lowest failing rank prints the error. During training the failing rank prints the error and
// ends the others with MPI_Abort, because they may be waiting for it.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/heartbeat.h"
#include "job/joint_error.h"
#include "job/mpi_session.h"

namespace ddp {

// What an exception means for the user: its exit code and one line. std::bad_alloc is out_of_memory; exceptions other
// than Error are internal errors.
struct Failure {
  ExitCode code = ExitCode::internal;
  std::string message;
};
Failure describe_failure(const std::exception_ptr& error);

// Collective, at the end of a phase of setting up: `mine` is this rank's failure, or nothing. Where any rank has
// failed, throws JointError on all, with the code of the lowest failing rank, which reports. A JointError is passed on
// without asking the others, who have it too. Where a signal has asked any rank to stop and there is nothing to save
// yet (StopMode::at_once), throws JointError(stopped) on all. Throws Error(rank_lost) where some rank does not come and
// no rank makes progress for `timeout` seconds.
void agree(const MpiSession& session, const std::exception_ptr& mine, double timeout = rank_timeout());

// Collective: runs `phase` and agrees on how it went; returns its result. Inside `phase` no rank waits for another,
// unless in a nested together() or agree().
template <class F>
auto together(const MpiSession& session, F&& phase, double timeout = rank_timeout()) {
  using Result = std::invoke_result_t<F>;
  std::exception_ptr failure;
  if constexpr (std::is_void_v<Result>) {
    try {
      std::forward<F>(phase)();
    } catch (...) {
      failure = std::current_exception();
    }
    agree(session, failure, timeout);
  } else {
    std::optional<Result> result;
    try {
      result.emplace(std::forward<F>(phase)());
    } catch (...) {
      failure = std::current_exception();
    }
    agree(session, failure, timeout);
    return std::move(*result);
  }
}

// Writes the line of `error` and ends all ranks with its exit code.
[[noreturn]] void report_and_abort(const MpiSession& session, const std::exception_ptr& error) noexcept;

// Runs `work`; an exception other than JointError ends all ranks from here, before any destructor outside of `work`
// could wait for a rank that will not answer. A session of one rank passes the exception on.
template <class F>
auto or_abort(const MpiSession& session, F&& work) {
  try {
    return std::forward<F>(work)();
  } catch (const JointError&) {
    throw;
  } catch (...) {
    if (session.size() == 1) throw;
    report_and_abort(session, std::current_exception());
  }
}

// The whole program: signals and the watchdog, the MPI session, `body`; returns the exit code, the result of `body` or
// that of the exception that ends it. An exception that is not a JointError takes the other ranks down as in
// or_abort(). `before_mpi` runs under the watchdog, for what must be known before MPI starts.
int run_program(
    const std::function<int(MpiSession& session)>& body, const std::function<void()>& before_mpi = [] {});

}  // namespace ddp
