#include "unit/data/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

// NOLINTBEGIN(cppcoreguidelines-no-malloc): this is operator new itself.
namespace {

std::atomic<std::size_t> g_count = 0;
std::atomic<std::size_t> g_largest = 0;

void* allocate(std::size_t bytes) {
  ++g_count;
  std::size_t seen = g_largest.load();
  while (seen < bytes && !g_largest.compare_exchange_weak(seen, bytes)) {
  }
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
// NOLINTEND(cppcoreguidelines-no-malloc)

namespace ddp {

AllocationRecord allocations() { return {g_count.load(), g_largest.load()}; }
void reset_largest() { g_largest = 0; }

}  // namespace ddp
