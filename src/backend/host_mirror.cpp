#include "backend/host_mirror.h"

namespace ddp {

HostMirror::HostMirror(Backend& backend, float* device, std::size_t count) : backend_(backend), device_(device) {
  if (backend.on_host()) {
    values_ = {device, count};
    return;
  }
  copy_ = backend.allocate_for_transfer(count * sizeof(float), "the host's copy of the parameters");
  values_ = {copy_.at<float>(0), count};
}

void HostMirror::fetch() {
  if (backend_.on_host()) return;
  backend_.download(values_.data(), device_, values_.size_bytes());
  backend_.synchronize();
}

void HostMirror::push() {
  if (backend_.on_host()) return;
  backend_.upload(device_, values_.data(), values_.size_bytes());
  backend_.synchronize();
}

}  // namespace ddp
