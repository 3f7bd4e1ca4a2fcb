#include "backend/staging.h"

#include <cstring>

#include "base/error.h"

namespace ddp {

Staging::Staging(DeviceQueue& queue, std::size_t max_bytes, const std::string& purpose, std::size_t buffers) {
  if (queue.on_host()) return;
  queue_ = &queue;
  for (std::size_t i = 0; i < buffers; ++i) {
    buffers_.push_back({queue.allocate_for_transfer(max_bytes, purpose), queue.allocate(max_bytes, purpose)});
  }
}

void Staging::set(std::span<const std::byte> content, std::size_t buffer) {
  bytes_ = content.size();
  data_ = content.empty() ? nullptr : content.data();
  if (queue_ == nullptr || content.empty()) return;
  current_ = buffer;
  const Buffer& to = buffers_.at(buffer);
  DDP_ASSERT(bytes_ <= to.host.bytes());
  std::memcpy(to.host.data(), content.data(), bytes_);
  data_ = to.device.data();
}

void Staging::enqueue() {
  const Buffer* from = queue_ != nullptr && bytes_ > 0 ? &buffers_[current_] : nullptr;
  if (from != nullptr) queue_->upload_beside(from->device.data(), from->host.data(), bytes_);
}

bool worth_keeping_on_device(const DeviceQueue& queue, std::size_t bytes) {
  return !queue.on_host() && 2 * bytes <= queue.available_bytes();
}

}  // namespace ddp
