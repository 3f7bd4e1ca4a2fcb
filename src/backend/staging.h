// A buffer that the host fills and the device's work reads.
//
//   Staging labels(backend.device(), max_samples * sizeof(std::int32_t), "the labels of a batch", /*buffers=*/2);
//   labels.set(std::as_bytes(std::span(values)), /*buffer=*/0);   // copies them to page-locked memory
//   labels.enqueue();                       // enqueues the copy to the device, beside the work of the queue
//   backend.device().join_uploads();
//   kernel(labels.at<std::int32_t>());
//   labels.set(std::as_bytes(std::span(values)), /*buffer=*/1);   // while that work still reads the first buffer
//
// Large content is better written to page-locked memory at once, so that it is not copied on the host:
//
//   Staging pixels(backend.device(), bytes, "the images of a batch", /*buffers=*/2, StagingSource::kept);
//   const auto allocate = transfer_allocator(backend.memory(), "the images of a batch");
//   const std::shared_ptr<std::uint8_t> images = allocate(bytes);
//   pixels.set(std::as_bytes(std::span(images.get(), bytes)));   // `images` must not change until the copy is done
//
// If device memory is host memory, nothing is copied or allocated: at() is the memory passed to set(), which must stay
// valid until the work on it is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/device_context.h"

namespace ddp {

// What happens to the host memory that Staging::set() is given.
enum class StagingSource : std::uint8_t {
  copied,  // it is copied to page-locked memory, and may then change
  kept,    // the device copies from it, so it must not change until then; slow if the memory is pageable
};

class Staging {
 public:
  Staging() = default;
  Staging(const DeviceContext& device, std::size_t max_bytes, const std::string& purpose, std::size_t buffers = 1,
          StagingSource source = StagingSource::copied);

  // 0 if device memory is host memory.
  std::size_t buffers() const { return buffers_.size(); }
  // The work on what this buffer held before must be done.
  void set(std::span<const std::byte> content, std::size_t buffer = 0);
  // Copies what was set last. Its buffer's work must be done; DeviceContext::join_uploads() orders the copy before later work.
  void enqueue();
  // Device memory of what was set last; null if there is nothing.
  template <class T>
  const T* at() const {
    return static_cast<const T*>(data_);
  }

 private:
  DeviceQueue* uploads_ = nullptr;  // null: device memory is host memory
  struct Buffer {
    Memory host;  // none for StagingSource::kept
    Memory device;
  };
  std::vector<Buffer> buffers_;
  std::size_t current_ = 0;
  const void* source_ = nullptr;
  const void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Allocates host memory for fast copies, which lives as long as its owners; refers to `memory`. Empty if device memory is
// host memory, where any memory will do.
std::function<std::shared_ptr<std::uint8_t>(std::size_t bytes)> transfer_allocator(DeviceMemory& memory,
                                                                                   const std::string& purpose);

// Whether constant data of this size should be kept in device memory: not if that is host memory, and only if the same
// amount stays free.
bool worth_keeping_on_device(const DeviceMemory& memory, std::size_t bytes);

}  // namespace ddp
