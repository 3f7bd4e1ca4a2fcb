#include "backend/host_mirror.h"

namespace ddp {

HostMirror::HostMirror(const DeviceContext& device, float* values, std::size_t count)
    : queue_(device.queue()), on_device_(values) {
  if (device.memory().on_host()) {
    values_ = {values, count};
    return;
  }
  copy_ = device.memory().allocate_for_transfer(count * sizeof(float), "the host's copy of the parameters");
  values_ = {copy_.at<float>(0), count};
}

void HostMirror::fetch() {
  if (values_.data() == on_device_) return;
  queue_.download(values_.data(), on_device_, values_.size_bytes());
  queue_.synchronize();
}

void HostMirror::push() {
  if (values_.data() == on_device_) return;
  queue_.upload(on_device_, values_.data(), values_.size_bytes());
  queue_.synchronize();
}

}  // namespace ddp
