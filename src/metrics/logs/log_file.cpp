#include "metrics/logs/log_file.h"

#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace ddp {
namespace {

// Between attempts, so that a disk that is not there does not slow down every step.
constexpr double kSecondsBetweenAttempts = 1;

}  // namespace

LogFile::LogFile(File file) : file_(std::move(file)), complete_(file_.size()) {}

void LogFile::write(std::string_view lines) {
  const std::scoped_lock lock(mutex_);
  missing_ += lines;
  if (failed_ && now() < retry_at_) return;
  const bool failed_before = failed_;
  try {
    put();
    if (failed_before) log_info("{} is written again, nothing is missing", file_.path().string());
  } catch (const Error& error) {
    retry_at_ = now() + kSecondsBetweenAttempts;
    if (!failed_before) log_warning("{}; training continues, and what is missing is written later", error.what());
  }
}

void LogFile::sync() {
  {
    const std::scoped_lock lock(mutex_);
    if (!missing_.empty()) put();
  }
  file_.sync();
}

void LogFile::put() {
  try {
    if (failed_) file_.truncate(complete_);
    file_.write(missing_);
  } catch (const Error&) {
    failed_ = true;
    throw;
  }
  failed_ = false;
  complete_ += missing_.size();
  missing_.clear();
}

}  // namespace ddp
