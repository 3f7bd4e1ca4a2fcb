// The queue of host memory: work is done when its call returns, and a mark is a reading of the clock.
//
//   class Bounded : public HostQueue {                             // in a test: a device with limited memory
//     std::size_t available_bytes() const override { return std::size_t{1} << 30; }
//   };
#pragma once

#include <array>

#include "backend/device_queue.h"

namespace ddp {

class HostQueue : public DeviceQueue {
 public:
  bool on_host() const override { return true; }
  Memory allocate(std::size_t bytes, const std::string& purpose) override;
  Memory allocate_for_transfer(std::size_t bytes, const std::string& purpose) override;
  void upload(void* device, const void* host, std::size_t bytes) override;
  void download(void* host, const void* device, std::size_t bytes) override;
  void upload_beside(void* device, const void* host, std::size_t bytes) override { upload(device, host, bytes); }
  void join_uploads() override {}
  void mark(std::size_t place) override;
  void synchronize() override {}
  bool reached(std::size_t /*place*/) override { return true; }
  void wait_for(std::size_t /*place*/) override {}
  double seconds_between(std::size_t from, std::size_t to) const override { return marks_.at(to) - marks_.at(from); }
  std::unique_ptr<Recording> record(const std::function<void()>& /*enqueue*/) override { return nullptr; }

 private:
  std::array<double, kMarks> marks_{};
};

}  // namespace ddp
