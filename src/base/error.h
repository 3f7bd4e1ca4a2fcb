// Errors: one exception type that carries the exit code of the job and one clear line for the user.
//
//   throw Error(ExitCode::data, "train-labels-idx1-ubyte: 60008 bytes expected, 1200 found; download it again");
//   check(epochs > 0, ExitCode::usage, "--epochs is {}; it must be at least 1", epochs);
//
// A message states in one line what is wrong, where, and what to do about it.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace ddp {

// The exit codes of the program, as docs/errors.md documents them.
enum class ExitCode : int {
  done = 0,
  internal = 1,       // a bug in this program
  usage = 2,          // an unknown option, a value out of range
  preflight = 3,      // the machine or the launch is unsuitable
  data = 4,           // a data set is missing, damaged or inconsistent
  out_of_memory = 5,  // a plan does not fit
  non_finite = 6,     // the loss or a gradient is infinite or NaN
  rank_lost = 7,      // a rank hung or died
  checkpoint = 8,     // a checkpoint cannot be written, or is unreadable or damaged
  stopped = 75,       // stopped on request, state saved
};

// `message` with line breaks replaced by spaces and other control characters, as in damaged files, by '?'.
std::string one_line(std::string message);

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, std::string message) : std::runtime_error(one_line(std::move(message))), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Throws Error(code, formatted message) unless `condition` holds.
template <class... Args>
void check(bool condition, ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// The text of an errno value, e.g. "No space left on device".
std::string errno_text(int error_number);

// Throws an internal error with the expression and its location; called by DDP_ASSERT.
[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);

}  // namespace ddp

// Checks an invariant; a failure is a bug in this program, never an error of the user.
#define DDP_ASSERT(expression) \
  ((expression) ? static_cast<void>(0) : ::ddp::assertion_failed(#expression, __FILE__, __LINE__))
