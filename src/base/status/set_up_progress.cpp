#include "base/status/set_up_progress.h"

#include <fmt/core.h>

#include <mutex>

namespace ddp {
namespace {

struct Work {
  std::mutex mutex;
  std::string what;
  std::int64_t done = 0;
  std::int64_t total = 0;
};

Work& work() {
  static Work instance;
  return instance;
}

}  // namespace

SetUpProgress::SetUpProgress(std::string_view what, std::int64_t total) {
  const std::lock_guard lock(work().mutex);
  work().what = what;
  work().done = 0;
  work().total = total;
}

SetUpProgress::~SetUpProgress() {
  const std::lock_guard lock(work().mutex);
  work().what.clear();
}

void SetUpProgress::advance(std::int64_t count) const {
  const std::lock_guard lock(work().mutex);
  work().done += count;
}

std::string set_up_progress() {
  const std::lock_guard lock(work().mutex);
  if (work().what.empty()) return "";
  return work().total > 0 ? fmt::format("{}, {} of {}", work().what, work().done, work().total)
                          : fmt::format("{}, {}", work().what, work().done);
}

}  // namespace ddp
