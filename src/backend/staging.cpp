#include "backend/staging.h"

#include <cstring>

#include "base/error.h"

namespace ddp {

Staging::Staging(const DeviceContext& device, std::size_t max_bytes, const std::string& purpose, std::size_t buffers,
                 StagingSource source) {
  DeviceMemory& memory = device.memory();
  if (memory.on_host()) return;
  uploads_ = &device.uploads();
  for (std::size_t i = 0; i < buffers; ++i) {
    buffers_.push_back({source == StagingSource::kept ? Memory() : memory.allocate_for_transfer(max_bytes, purpose),
                        memory.allocate(max_bytes, purpose)});
  }
}

void Staging::set(std::span<const std::byte> content, std::size_t buffer) {
  bytes_ = content.size();
  data_ = content.empty() ? nullptr : content.data();
  if (uploads_ == nullptr || content.empty()) return;
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
  if (uploads_ != nullptr && bytes_ > 0) uploads_->upload(buffers_[current_].device.data(), source_, bytes_);
}

std::function<std::shared_ptr<std::uint8_t>(std::size_t bytes)> transfer_allocator(DeviceMemory& memory,
                                                                                   const std::string& purpose) {
  if (memory.on_host()) return {};
  return [&memory, purpose](std::size_t bytes) -> std::shared_ptr<std::uint8_t> {
    const auto block = std::make_shared<Memory>(memory.allocate_for_transfer(bytes, purpose));
    return {block, block->at<std::uint8_t>(0)};
  };
}

bool worth_keeping_on_device(const DeviceMemory& memory, std::size_t bytes) {
  return !memory.on_host() && 2 * bytes <= memory.available_bytes();
}

}  // namespace ddp
