#include "comm/doorbells.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <string>
#include <thread>

#include "base/file.h"
#include "base/host.h"
#include "base/random.h"

namespace ddp {

// In a cache line of its own: others write to it while its owner computes.
struct alignas(64) Doorbells::Bell {
  std::atomic<std::uint32_t> rings;
  std::atomic<std::uint32_t> sleepers;
};

namespace {

constexpr std::size_t kHeader = 64;  // holds the memory's name
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "other processes use it as well");

// Ranks with the same place can open each other's files below /proc. Where an identity cannot be read, the memory's name still
// tells wrong files apart.
std::string place_of_rank() { return fmt::format("{} {} {}", host_name(), boot_id(), pid_namespace()); }

// Empty if the file has another size or cannot be mapped.
std::span<std::byte> map(const Descriptor& file, std::size_t bytes) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0 || status.st_size != static_cast<off_t>(bytes)) return {};
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return {};  // NOLINT(cppcoreguidelines-pro-type-cstyle-cast): the system's macro
  return {static_cast<std::byte*>(memory), bytes};
}

// A file in memory that goes with its last user, and so is never left behind; -1 if there can be none.
int create_memory(std::size_t bytes, const std::string& name) {
  Descriptor file(memfd_create("ddp_train doorbells", MFD_CLOEXEC));
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return -1;
  return pwrite(file.get(), name.data(), name.size(), 0) == static_cast<ssize_t>(name.size()) ? file.release() : -1;
}

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

Doorbells::Doorbells(Communicator& ranks) : bells_(static_cast<std::size_t>(ranks.size())) {
  if (ranks.size() > 1) open(ranks);
}

Doorbells::~Doorbells() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

void Doorbells::open(Communicator& ranks) {
  constexpr const char* kOperation = "the sharing of memory on a host";
  const auto rank = static_cast<std::size_t>(ranks.rank());
  const std::vector<std::string> places = ranks.all_gather_text(place_of_rank(), kOperation);
  // The lowest rank of a place creates the memory.
  const auto creator = static_cast<std::size_t>(std::find(places.begin(), places.end(), places[rank]) - places.begin());
  const std::size_t bytes = kHeader + bells_.size() * sizeof(Bell);
  const std::string name = random_token();
  const Descriptor created(rank == creator ? create_memory(bytes, name) : -1);
  const std::vector<std::string> files = ranks.all_gather_text(
      created.get() < 0 ? "" : fmt::format("{}/proc/{}/fd/{}", name, getpid(), created.get()), kOperation);
  if (const std::string& file = files[creator]; file.size() > name.size()) {
    const Descriptor opened(::open(file.c_str() + name.size(), O_RDWR | O_CLOEXEC));
    memory_ = map(opened, bytes);
    // In spite of everything, the path could name another file here.
    if (!memory_.empty() && std::memcmp(memory_.data(), file.data(), name.size()) != 0) {
      munmap(memory_.data(), memory_.size());
      memory_ = {};
    }
  }
  const std::vector<std::string> mapped = ranks.all_gather_text(memory_.empty() ? "" : "mapped", kOperation);
  if (memory_.empty()) return;
  for (std::size_t other = 0; other < bells_.size(); ++other) {
    if (places[other] != places[rank] || mapped[other].empty()) continue;
    // All zero, which is what a new atomic holds.
    bells_[other] = reinterpret_cast<Bell*>(memory_.data() + kHeader) + other;
  }
  own_ = bells_[rank];
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
