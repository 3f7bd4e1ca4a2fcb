#include "backend/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/text/text.h"

namespace ddp {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20U;
// Below it huge pages are not worth their size: a step has many small buffers, for its messages and tables.
constexpr std::size_t kWorthHugePages = std::size_t{256} << 10U;

}  // namespace

Memory::Memory(std::byte* data, std::size_t bytes, Release release)
    : data_(data), bytes_(bytes), release_(std::move(release)) {}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      release_(std::exchange(other.release_, nullptr)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(release_, other.release_);
  return *this;
}

Memory::~Memory() {
  if (data_ != nullptr && release_) release_(data_);
}

Memory allocate_on_host(std::size_t bytes, const std::string& purpose) {
  if (bytes == 0) return {};
  const bool huge = bytes >= kWorthHugePages;
  const std::size_t unit = huge ? kHugePage : kMemoryAlignment;
  const std::size_t rounded = (bytes + unit - 1) / unit * unit;
  void* memory = rounded >= bytes ? std::aligned_alloc(unit, rounded) : nullptr;
  check(memory != nullptr, ExitCode::out_of_memory,
        "{} need {} but this process cannot allocate that much; use a smaller batch or more logical shards", purpose,
        format_bytes(bytes));
  // Advice only: without huge pages the run is slower but correct.
  if (huge) (void)madvise(memory, rounded, MADV_HUGEPAGE);
  std::memset(memory, 0, rounded);
  return {static_cast<std::byte*>(memory), bytes, [](std::byte* data) { std::free(data); }};
}

}  // namespace ddp
