#include "metrics/display/waiting_lines.h"

#include <chrono>
#include <system_error>
#include <utility>

namespace ddp {

WaitingLines::WaitingLines(Console& console, std::string title, std::function<std::string()> progress,
                           const WaitingTimes& times)
    : console_(console), title_(std::move(title)), progress_(std::move(progress)), times_(times) {
  try {
    thread_ = std::thread([this] { show(); });
  } catch (const std::system_error&) {
    return;  // the run needs none
  }
}

void WaitingLines::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  if (!thread_.joinable()) return;
  thread_.join();
  console_.clear_bar();
}

bool WaitingLines::wait(std::unique_lock<std::mutex>& lock, double seconds) {
  return !stopped_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return stopping_; });
}

void WaitingLines::show() {
  std::unique_lock lock(mutex_);
  if (!wait(lock, times_.first)) return;
  console_.line(title_);
  if (!wait(lock, times_.next - times_.first)) return;
  for (;;) {
    const std::string text = progress_();
    if (!text.empty()) console_.waiting("  " + text);
    if (!wait(lock, console_.has_bar() ? times_.next : times_.lines)) return;
  }
}

}  // namespace ddp
