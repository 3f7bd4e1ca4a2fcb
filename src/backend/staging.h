// A buffer that the host fills and the device's work reads.
//
//   Staging labels(backend.queue(), max_samples * sizeof(std::int32_t), "the labels of a batch");
//   labels.set(std::as_bytes(std::span(values)));
//   labels.enqueue();                       // the copy to the device, part of its work
//   kernel(labels.at<std::int32_t>());
//
// Where device memory is host memory nothing is copied or allocated: at() is what was set, which must stay until the
// work on it is done.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "backend/device_queue.h"

namespace ddp {

class Staging {
 public:
  Staging() = default;
  Staging(DeviceQueue& queue, std::size_t max_bytes, const std::string& purpose);

  // The copies of what was set before must be done.
  void set(std::span<const std::byte> content);
  void enqueue();
  // Device memory; null where nothing is set.
  template <class T>
  const T* at() const {
    return static_cast<const T*>(data_);
  }

 private:
  DeviceQueue* queue_ = nullptr;  // null: device memory is host memory
  Memory host_;
  Memory device_;
  const void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Whether data of this size that does not change should be kept in device memory: not where that is the host's, and
// only if as much again stays free.
bool worth_keeping_on_device(const DeviceQueue& queue, std::size_t bytes);

}  // namespace ddp
