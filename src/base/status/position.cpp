#include "base/status/position.h"

#include <sys/uio.h>

#include <atomic>

namespace ddp {
namespace {

// Read from other processes as plain numbers.
struct Here {
  std::atomic<std::int64_t> step{0};
  std::atomic<WorkPhase> phase{WorkPhase::set_up};
  std::atomic<std::int32_t> bucket{0};
};
static_assert(sizeof(Here) == sizeof(Position));
Here here;

}  // namespace

const char* phase_name(WorkPhase phase) noexcept {
  switch (phase) {
    case WorkPhase::set_up:
      return "set-up";
    case WorkPhase::data:
      return "data";
    case WorkPhase::forward:
      return "forward";
    case WorkPhase::backward:
      return "backward";
    case WorkPhase::reduction:
      return "reduction";
    case WorkPhase::update:
      return "update";
    case WorkPhase::device:
      return "device";
    case WorkPhase::diagnosis:
      return "diagnosis";
    case WorkPhase::evaluation:
      return "evaluation";
    case WorkPhase::checkpoint:
      return "checkpoint";
    case WorkPhase::end:
      break;
  }
  return "end";
}

void note_step(std::int64_t step) noexcept { here.step.store(step, std::memory_order_relaxed); }
void note_phase(WorkPhase phase) { here.phase.store(phase, std::memory_order_relaxed); }
void note_bucket(std::int32_t bucket) noexcept { here.bucket.store(bucket, std::memory_order_relaxed); }

Position position() noexcept {
  return {here.step.load(std::memory_order_relaxed), here.phase.load(std::memory_order_relaxed),
          here.bucket.load(std::memory_order_relaxed)};
}

std::uint64_t position_address() noexcept { return reinterpret_cast<std::uintptr_t>(&here); }

std::optional<Position> position_in(pid_t process, std::uint64_t address) noexcept {
  Position found;
  const iovec local{&found, sizeof found};
  const iovec remote{reinterpret_cast<void*>(address), sizeof found};  // NOLINT(performance-no-int-to-ptr)
  if (process_vm_readv(process, &local, 1, &remote, 1, 0) != static_cast<ssize_t>(sizeof found)) return std::nullopt;
  return found;
}

}  // namespace ddp
