#include "backend/staging.h"

#include <cstring>

#include "base/error.h"

namespace ddp {

Staging::Staging(Backend& backend, std::size_t max_bytes, const std::string& purpose) {
  if (backend.on_host()) return;
  backend_ = &backend;
  host_ = backend.allocate_for_transfer(max_bytes, purpose);
  device_ = backend.allocate(max_bytes, purpose);
}

void Staging::set(std::span<const std::byte> content) {
  bytes_ = content.size();
  data_ = content.empty() ? nullptr : content.data();
  if (backend_ == nullptr || content.empty()) return;
  DDP_ASSERT(bytes_ <= host_.bytes());
  std::memcpy(host_.data(), content.data(), bytes_);
  data_ = device_.data();
}

void Staging::enqueue() {
  if (backend_ != nullptr && bytes_ > 0) backend_->upload(device_.data(), host_.data(), bytes_);
}

bool worth_keeping_on_device(const Backend& backend, std::size_t bytes) {
  return !backend.on_host() && 2 * bytes <= backend.available_bytes();
}

}  // namespace ddp
