// What people see while a run is set up, which takes seconds where kernels are timed or many files are listed: one line
// within a second, and then the progress.
//
//   WaitingLines waiting(console, "ddp_train 0.1.0: lenet on glyphs, 2 ranks", set_up_progress);
//   ...
//   waiting.stop();   // before anything else is written to the console
//
// A set-up that is done, or has failed, before that shows nothing. Where no thread can be started, nothing is shown.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "metrics/display/console.h"

namespace ddp {

struct WaitingTimes {
  double first = 0.7;  // seconds until the first line
  double next = 3;     // seconds until the progress is shown, and between redraws of a terminal's line
  double lines = 10;   // seconds between further lines elsewhere
};

class WaitingLines {
 public:
  // `progress` is called by another thread; an empty text is not shown.
  WaitingLines(Console& console, std::string title, std::function<std::string()> progress,
               const WaitingTimes& times = {});
  ~WaitingLines() { stop(); }
  WaitingLines(const WaitingLines&) = delete;
  WaitingLines& operator=(const WaitingLines&) = delete;

  void stop();

 private:
  void show();
  // Returns whether to go on.
  bool wait(std::unique_lock<std::mutex>& lock, double seconds);

  Console& console_;
  std::string title_;
  std::function<std::string()> progress_;
  WaitingTimes times_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ddp
