#include "backend/host_mirror.h"

namespace ddp {

HostMirror::HostMirror(DeviceQueue& queue, float* device, std::size_t count) : queue_(queue), device_(device) {
  if (queue.on_host()) {
    values_ = {device, count};
    return;
  }
  copy_ = queue.allocate_for_transfer(count * sizeof(float), "the host's copy of the parameters");
  values_ = {copy_.at<float>(0), count};
}

void HostMirror::fetch() {
  if (queue_.on_host()) return;
  queue_.download(values_.data(), device_, values_.size_bytes());
  queue_.synchronize();
}

void HostMirror::push() {
  if (queue_.on_host()) return;
  queue_.upload(device_, values_.data(), values_.size_bytes());
  queue_.synchronize();
}

}  // namespace ddp
