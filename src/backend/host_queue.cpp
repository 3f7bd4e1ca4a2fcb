#include "backend/host_queue.h"

#include <cstring>

#include "base/clock.h"

namespace ddp {

Memory HostQueue::allocate(std::size_t bytes, const std::string& purpose) { return allocate_on_host(bytes, purpose); }

Memory HostQueue::allocate_for_transfer(std::size_t bytes, const std::string& purpose) {
  return allocate_on_host(bytes, purpose);
}

void HostQueue::upload(void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void HostQueue::download(void* host, const void* device, std::size_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

void HostQueue::mark(std::size_t place) { marks_.at(place) = now(); }

}  // namespace ddp
