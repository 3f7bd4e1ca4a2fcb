#include "distributed/harness/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<long> allocations = 0;

}  // namespace

namespace ddp::testing {

long allocation_count() { return allocations.load(); }

}  // namespace ddp::testing

// The array forms call this one.
void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const auto boundary = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(boundary, (bytes + boundary) / boundary * boundary)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
