// A buffer that the host fills and the device's work reads.
//
//   Staging labels(backend.queue(), max_samples * sizeof(std::int32_t), "the labels of a batch", /*buffers=*/2);
//   labels.set(std::as_bytes(std::span(values)), /*buffer=*/0);
//   labels.enqueue();                       // enqueues the copy to the device, beside the work of the queue
//   backend.queue().join_uploads();
//   kernel(labels.at<std::int32_t>());
//   labels.set(std::as_bytes(std::span(values)), /*buffer=*/1);   // while that work still reads the first buffer
//
// If device memory is host memory, nothing is copied or allocated: at() is the memory passed to set(), which must stay
// valid until the work on it is done.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "backend/device_queue.h"

namespace ddp {

class Staging {
 public:
  Staging() = default;
  Staging(DeviceQueue& queue, std::size_t max_bytes, const std::string& purpose, std::size_t buffers = 1);

  // The work on what this buffer held before must be done.
  void set(std::span<const std::byte> content, std::size_t buffer = 0);
  // Of what was set last. Its buffer's work must be done; DeviceQueue::join_uploads() orders the copy before later work.
  void enqueue();
  // Device memory of what was set last; null if there is nothing.
  template <class T>
  const T* at() const {
    return static_cast<const T*>(data_);
  }

 private:
  DeviceQueue* queue_ = nullptr;  // null: device memory is host memory
  struct Buffer {
    Memory host;
    Memory device;
  };
  std::vector<Buffer> buffers_;
  std::size_t current_ = 0;
  const void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Whether constant data of this size should be kept in device memory: not if that is host memory, and only if the same
// amount stays free.
bool worth_keeping_on_device(const DeviceQueue& queue, std::size_t bytes);

}  // namespace ddp
