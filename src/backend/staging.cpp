#include "backend/staging.h"

#include <cstring>

#include "base/error.h"

namespace ddp {

Staging::Staging(DeviceQueue& queue, std::size_t max_bytes, const std::string& purpose) {
  if (queue.on_host()) return;
  queue_ = &queue;
  host_ = queue.allocate_for_transfer(max_bytes, purpose);
  device_ = queue.allocate(max_bytes, purpose);
}

void Staging::set(std::span<const std::byte> content) {
  bytes_ = content.size();
  data_ = content.empty() ? nullptr : content.data();
  if (queue_ == nullptr || content.empty()) return;
  DDP_ASSERT(bytes_ <= host_.bytes());
  std::memcpy(host_.data(), content.data(), bytes_);
  data_ = device_.data();
}

void Staging::enqueue() {
  if (queue_ != nullptr && bytes_ > 0) queue_->upload(device_.data(), host_.data(), bytes_);
}

bool worth_keeping_on_device(const DeviceQueue& queue, std::size_t bytes) {
  return !queue.on_host() && 2 * bytes <= queue.available_bytes();
}

}  // namespace ddp
