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

// That the calling thread has spent on a core. Unlike now() a system call, of about a quarter of a microsecond.
inline double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// That all threads of this process have spent on cores.
inline double process_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace ddp
