// Waiting by polling, without holding a core: some microseconds of spinning, then yielding, then short sleeps.
//
//   Backoff backoff(/*eager_seconds=*/1e-3);
//   while (!arrived()) backoff.pause();
//
// Ranks share their cores with the compute threads, so a wait must not burn one; and MPI makes progress only inside its
// calls, so a wait cannot simply block. Yielding reacts at once if the core is free; otherwise the thread runs again
// only after the other thread's time slice. A thread that shares a core with compute should therefore sleep early,
// because the kernel schedules it soon after it wakes.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"

namespace ddp {

class Backoff {
 public:
  // Sleeps only after `eager_seconds` of spinning and yielding.
  explicit Backoff(double eager_seconds) : eager_seconds_(eager_seconds) {}

  // Call after progress: the next pauses are short again.
  void reset() {
    begin_ = now();
    sleep_ = kFirstSleep;
  }

  void pause() {
    pause([](std::chrono::microseconds time) { std::this_thread::sleep_for(time); });
  }

  // sleep(std::chrono::microseconds) returns after that time, or earlier if there is something to look for.
  template <class Sleep>
  void pause(Sleep sleep) {
    const double seconds = waited();
    if (seconds < kSpin) return;
    if (seconds < eager_seconds_) {
      std::this_thread::yield();
      return;
    }
    sleep(sleep_);
    sleep_ = std::min(sleep_ * 3 / 2, seconds < kLongWait ? kLastSleep : kLongSleep);
  }

  // Seconds since construction or the last reset().
  double waited() const { return now() - begin_; }

 private:
  static constexpr double kSpin = 5e-6;
  static constexpr std::chrono::microseconds kFirstSleep{100};
  static constexpr std::chrono::microseconds kLastSleep{250};
  // After a wait this long the other ranks are probably busy with other work, such as an evaluation, which polling
  // would disturb.
  static constexpr double kLongWait = 0.1;
  static constexpr std::chrono::microseconds kLongSleep{1000};

  double eager_seconds_;
  double begin_ = now();
  std::chrono::microseconds sleep_ = kFirstSleep;
};

}  // namespace ddp
