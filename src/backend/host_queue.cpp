#include "backend/host_queue.h"

#include <cstring>
#include <utility>

#include "base/clock.h"

namespace ddp {
namespace {

class HostEvent final : public DeviceEvent {
 public:
  bool reached() override { return true; }
  void wait() override {}
  double seconds_since(const DeviceEvent& earlier) const override {
    return time_ - static_cast<const HostEvent&>(earlier).time_;
  }
  void set() { time_ = now(); }

 private:
  double time_ = 0;
};

}  // namespace

void HostQueue::upload(void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void HostQueue::download(void* host, const void* device, std::size_t bytes) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

std::unique_ptr<DeviceEvent> HostQueue::make_event() { return std::make_unique<HostEvent>(); }

void HostQueue::mark(DeviceEvent& event) { static_cast<HostEvent&>(event).set(); }

std::unique_ptr<DeviceContext> make_host_device(std::unique_ptr<DeviceMemory> memory) {
  return std::make_unique<DeviceContext>(std::move(memory), std::make_unique<HostQueue>(),
                                         std::make_unique<HostQueue>());
}

}  // namespace ddp
