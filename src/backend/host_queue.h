// The memory of the host as that of a device, and its queue: work is done when its call returns, and an event is a reading of
// the clock.
//
//   class Bounded : public HostMemory {                            // in a test: a device with limited memory
//     std::size_t available_bytes() const override { return std::size_t{1} << 30; }
//   };
//   Backend backend(make_host_device(std::make_unique<Bounded>()), make_cpu_ops(), make_cpu_math());
#pragma once

#include <memory>

#include "backend/device_context.h"

namespace ddp {

class HostMemory : public DeviceMemory {
 public:
  bool on_host() const override { return true; }
  Memory allocate(std::size_t bytes, const std::string& purpose) override { return allocate_on_host(bytes, purpose); }
  Memory allocate_for_transfer(std::size_t bytes, const std::string& purpose) override {
    return allocate_on_host(bytes, purpose);
  }
};

class HostQueue : public DeviceQueue {
 public:
  void upload(void* device, const void* host, std::size_t bytes) override;
  void download(void* host, const void* device, std::size_t bytes) override;
  std::unique_ptr<DeviceEvent> make_event() override;
  void mark(DeviceEvent& event) override;
  void wait_for(const DeviceEvent& /*event*/) override {}
  void synchronize() override {}
  std::unique_ptr<Recording> record(const std::function<void()>& /*enqueue*/) override { return nullptr; }
};

std::unique_ptr<DeviceContext> make_host_device(std::unique_ptr<DeviceMemory> memory = std::make_unique<HostMemory>());

}  // namespace ddp
