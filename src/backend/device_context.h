// A device as memory and two queues of work: one for the steps, one for uploads beside them.
//
//   const DeviceContext& device = backend.device();
//   Memory memory = device.memory().allocate(bytes, "the labels of a batch");
//   device.uploads().upload(memory.data(), host, bytes);   // begins at once, while earlier work of queue() executes
//   device.join_uploads();                                 // work of queue() from here on sees it
#pragma once

#include <memory>
#include <utility>

#include "backend/device_queue.h"
#include "backend/memory.h"

namespace ddp {

class DeviceContext {
 public:
  DeviceContext(std::unique_ptr<DeviceMemory> memory, std::unique_ptr<DeviceQueue> queue,
                std::unique_ptr<DeviceQueue> uploads)
      : memory_(std::move(memory)),
        queue_(std::move(queue)),
        uploads_(std::move(uploads)),
        uploaded_(uploads_->make_event()) {}

  DeviceMemory& memory() const { return *memory_; }
  DeviceQueue& queue() const { return *queue_; }
  // No work enqueued so far in queue() may use the memory that is written by an upload.
  DeviceQueue& uploads() const { return *uploads_; }
  // Later work of queue() waits for all uploads so far. Cannot be recorded.
  void join_uploads() const {
    uploads_->mark(*uploaded_);
    queue_->wait_for(*uploaded_);
  }

 private:
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<DeviceQueue> queue_;
  std::unique_ptr<DeviceQueue> uploads_;
  std::unique_ptr<DeviceEvent> uploaded_;
};

}  // namespace ddp
