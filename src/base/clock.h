// Monotonic time and processor time in seconds, as doubles.
//
//   const double begin = now();
//   work();
//   const double seconds = now() - begin;
#pragma once

#include <chrono>
#include <ctime>

namespace ddp {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double clock_seconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Processor time of the calling thread. Unlike now() a system call, of about a quarter of a microsecond.
inline double thread_cpu_seconds() { return clock_seconds(CLOCK_THREAD_CPUTIME_ID); }
// Processor time of all threads of this process.
inline double process_cpu_seconds() { return clock_seconds(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace ddp
