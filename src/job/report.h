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
#include "base/status/heartbeat.h"
#include "job/joint_error.h"
#include "job/mpi_session.h"

namespace ddp {

// The exit code and the one-line message for an exception. std::bad_alloc is out_of_memory; exceptions other than Error
// are internal errors.
struct Failure {
  ExitCode code = ExitCode::internal;
  std::string message;
};
Failure describe_failure(const std::exception_ptr& error);

// Collective, at the end of a setup phase: `mine` is this rank's failure, or null. If any rank failed, throws
// JointError on all ranks, with the exit code of the lowest failing rank, which reports it. A JointError is rethrown
// without communication, since all ranks have it. If a signal requested a stop on any rank and there is nothing to save
// yet (StopMode::at_once), throws JointError(stopped) on all ranks. Throws Error(rank_lost) if a rank does not arrive
// and no rank makes progress for `timeout` seconds.
void agree(const MpiSession& session, const std::exception_ptr& mine, double timeout = rank_timeout());

// Collective: runs `phase`, calls agree(), and returns the result of `phase`. Inside `phase` no rank may wait for
// another, except in a nested together() or agree().
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

// Runs `work`; an exception other than JointError ends all ranks immediately, before any destructor outside `work`
// could wait for a rank that will not respond. With a single rank the exception propagates.
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

// The whole program: installs signal handlers and the watchdog, opens the MPI session and runs `body`; returns its
// result, or the exit code of the exception that ended it. An exception other than JointError ends the other ranks as
// in or_abort(). `before_mpi` runs under the watchdog, for checks that must precede MPI_Init.
int run_program(
    const std::function<int(MpiSession& session)>& body, const std::function<void()>& before_mpi = [] {});

}  // namespace ddp
