#include "comm/transport/doorbells.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <thread>

namespace ddp {

// In a cache line of its own: others write to it while its owner computes.
struct alignas(64) Doorbells::Bell {
  std::atomic<std::uint32_t> rings;
  std::atomic<std::uint32_t> sleepers;
};

namespace {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "other processes use it as well");

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

Doorbells::Doorbells(Communicator& ranks)
    : memory_(ranks, ranks.size() > 1 ? sizeof(Bell) : 0), bells_(static_cast<std::size_t>(ranks.size())) {
  for (std::size_t rank = 0; rank < bells_.size(); ++rank) {
    const std::span<std::byte> block = memory_.of(static_cast<int>(rank));
    // All zero, which is what a new atomic holds.
    if (!block.empty()) bells_[rank] = reinterpret_cast<Bell*>(block.data());
  }
  own_ = bells_[static_cast<std::size_t>(ranks.rank())];
}

// Note [No ring is lost]
// A sleeper counts itself before the kernel compares the rings with what it has heard; a ringer counts the ring before it looks
// for sleepers. In the single order of sequentially consistent operations one of them comes first, and the other sees it.
void Doorbells::ring(int rank) noexcept {
  Bell* bell = bells_[static_cast<std::size_t>(rank)];
  if (bell == nullptr || bell == own_) return;
  bell->rings.fetch_add(1);
  if (bell->sleepers.load() > 0) futex(bell->rings, FUTEX_WAKE, INT_MAX, nullptr);
}

std::uint32_t Doorbells::heard() const noexcept { return own_ == nullptr ? 0 : own_->rings.load(); }

bool Doorbells::sleep(std::uint32_t heard, std::chrono::microseconds most) noexcept {
  if (own_ == nullptr) {
    std::this_thread::sleep_for(most);
    return false;
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most);
  const timespec timeout{seconds.count(), std::chrono::nanoseconds(most - seconds).count()};
  own_->sleepers.fetch_add(1);
  futex(own_->rings, FUTEX_WAIT, heard, &timeout);
  own_->sleepers.fetch_sub(1);
  return own_->rings.load() != heard;
}

}  // namespace ddp
