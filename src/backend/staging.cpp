#include "backend/staging.h"

#include <cstring>

#include "base/error.h"

namespace ddp {

Staging::Staging(DeviceQueue& queue, std::size_t max_bytes, const std::string& purpose, std::size_t buffers,
                 StagingSource source) {
  if (queue.on_host()) return;
  queue_ = &queue;
  for (std::size_t i = 0; i < buffers; ++i) {
    buffers_.push_back({source == StagingSource::kept ? Memory() : queue.allocate_for_transfer(max_bytes, purpose),
                        queue.allocate(max_bytes, purpose)});
  }
}

void Staging::set(std::span<const std::byte> content, std::size_t buffer) {
  bytes_ = content.size();
  data_ = content.empty() ? nullptr : content.data();
  if (queue_ == nullptr || content.empty()) return;
  current_ = buffer;
  const Buffer& to = buffers_.at(buffer);
  DDP_ASSERT(bytes_ <= to.device.bytes());
  source_ = data_;
  if (to.host.data() != nullptr) {
    std::memcpy(to.host.data(), content.data(), bytes_);
    source_ = to.host.data();
  }
  data_ = to.device.data();
}

void Staging::enqueue() {
  if (queue_ != nullptr && bytes_ > 0) queue_->upload_beside(buffers_[current_].device.data(), source_, bytes_);
}

std::function<std::shared_ptr<std::uint8_t>(std::size_t bytes)> transfer_allocator(DeviceQueue& queue,
                                                                                   const std::string& purpose) {
  if (queue.on_host()) return {};
  return [&queue, purpose](std::size_t bytes) -> std::shared_ptr<std::uint8_t> {
    const auto memory = std::make_shared<Memory>(queue.allocate_for_transfer(bytes, purpose));
    return {memory, memory->at<std::uint8_t>(0)};
  };
}

bool worth_keeping_on_device(const DeviceQueue& queue, std::size_t bytes) {
  return !queue.on_host() && 2 * bytes <= queue.available_bytes();
}

}  // namespace ddp
