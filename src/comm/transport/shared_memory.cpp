#include "comm/transport/shared_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/host.h"
#include "base/random.h"

namespace ddp {
namespace {

// The page of every processor that is supported; a block begins on a page, so that it is on its owner's NUMA node.
constexpr std::size_t kPage = 4096;
constexpr const char* kOperation = "the sharing of memory on a host";

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Ranks with the same place can open each other's files below /proc. Where an identity cannot be read, the memory's name still
// tells wrong files apart.
std::string place_of_rank() { return fmt::format("{} {} {}", host_name(), boot_id(), pid_namespace()); }

// Empty if the file has another size or cannot be mapped.
std::span<std::byte> map(const Descriptor& file, std::size_t bytes) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0 || status.st_size != static_cast<off_t>(bytes)) return {};
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return {};  // NOLINT(cppcoreguidelines-pro-type-cstyle-cast): the system's macro
  // Advice only, which most systems ignore for shared memory.
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(memory), bytes};
}

// -1 if there can be none.
int create_memory(std::size_t bytes, const std::string& name) {
  Descriptor file(memfd_create("ddp_train", MFD_CLOEXEC));
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return -1;
  return pwrite(file.get(), name.data(), name.size(), 0) == static_cast<ssize_t>(name.size()) ? file.release() : -1;
}

// What a rank says of itself: "bytes place".
std::size_t bytes_of(const std::string& rank) {
  std::size_t bytes = 0;
  std::from_chars(rank.data(), rank.data() + rank.size(), bytes);
  return bytes;
}
std::string_view place_of(const std::string& rank) { return std::string_view(rank).substr(rank.find(' ')); }

}  // namespace

SharedMemory::SharedMemory(Communicator& ranks, std::size_t bytes) : blocks_(static_cast<std::size_t>(ranks.size())) {
  open(ranks, bytes);
}

SharedMemory::~SharedMemory() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

void SharedMemory::open(Communicator& ranks, std::size_t bytes) {
  const auto rank = static_cast<std::size_t>(ranks.rank());
  const std::vector<std::string> all = ranks.all_gather_text(fmt::format("{} {}", bytes, place_of_rank()), kOperation);
  const std::string_view place = place_of(all[rank]);
  // One file for a place, which its lowest rank creates: a page with the name, then the blocks.
  std::size_t creator = all.size();
  std::size_t total = kPage;
  std::vector<std::size_t> begins(all.size());
  for (std::size_t other = 0; other < all.size(); ++other) {
    if (place_of(all[other]) != place) continue;
    creator = std::min(creator, other);
    begins[other] = total;
    total += whole_pages(bytes_of(all[other]));
  }
  const std::string name = random_token();
  const Descriptor created(rank == creator ? create_memory(total, name) : -1);
  const std::vector<std::string> files = ranks.all_gather_text(
      created.get() < 0 ? "" : fmt::format("{}/proc/{}/fd/{}", name, getpid(), created.get()), kOperation);
  if (const std::string& file = files[creator]; file.size() > name.size()) {
    const Descriptor opened(::open(file.c_str() + name.size(), O_RDWR | O_CLOEXEC));
    memory_ = map(opened, total);
    // In spite of everything, the path could name another file here.
    if (!memory_.empty() && std::memcmp(memory_.data(), file.data(), name.size()) != 0) {
      munmap(memory_.data(), memory_.size());
      memory_ = {};
    }
  }
  // Resident, on this rank's NUMA node.
  if (!memory_.empty()) std::memset(memory_.data() + begins[rank], 0, bytes);
  const std::vector<std::string> mapped = ranks.all_gather_text(memory_.empty() ? "" : "mapped", kOperation);
  if (memory_.empty()) return;
  for (std::size_t other = 0; other < all.size(); ++other) {
    if (place_of(all[other]) != place || mapped[other].empty()) continue;
    blocks_[other] = memory_.subspan(begins[other], bytes_of(all[other]));
  }
}

}  // namespace ddp
