// Monotonic time in seconds, as a double.
//
//   const double begin = now();
//   work();
//   const double seconds = now() - begin;
#pragma once

#include <chrono>

namespace ddp {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace ddp
