#include "base/status/last_acts.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace ddp {
namespace {

// Neither is ever destroyed, since a library may end the process by exit().
std::mutex& mutex() {
  static auto* const instance = new std::mutex;
  return *instance;
}

std::vector<LastAct*>& acts() {
  static auto* const instance = new std::vector<LastAct*>;
  return *instance;
}

}  // namespace

LastAct::LastAct(std::function<void()> act) : act_(std::move(act)) {
  const std::scoped_lock lock(mutex());
  acts().push_back(this);
}

LastAct::~LastAct() {
  const std::scoped_lock lock(mutex());
  std::erase(acts(), this);
}

void perform_last_acts() noexcept {
  // Held throughout, so that the destructor of an object waits while its action runs.
  const std::scoped_lock lock(mutex());
  while (!acts().empty()) {
    LastAct* const last = acts().back();
    acts().pop_back();
    try {
      last->act_();
    } catch (...) {
      // The process is ending; the remaining actions must still run.
    }
  }
}

}  // namespace ddp
