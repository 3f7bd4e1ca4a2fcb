#include "base/time_slice.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace ddp {
namespace {

// The first version of the kernel's struct sched_attr, which not every C library declares.
struct Scheduling {
  std::uint32_t size = sizeof(Scheduling);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;  // the slice, in nanoseconds
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};
static_assert(sizeof(Scheduling) == 48);

}  // namespace

void shorten_time_slice(std::chrono::nanoseconds slice) noexcept {
  Scheduling scheduling;
  if (syscall(SYS_sched_getattr, 0, &scheduling, sizeof(scheduling), 0) != 0) return;
  scheduling.size = sizeof(scheduling);
  scheduling.runtime = static_cast<std::uint64_t>(slice.count());
  static_cast<void>(syscall(SYS_sched_setattr, 0, &scheduling, 0));
}

}  // namespace ddp
