// A device as a queue of work: its memory, the copies to and from the host, marks in time, and recordings.
//
//   DeviceQueue& queue = backend.queue();
//   Memory memory = queue.allocate(bytes, "the activations");
//   queue.upload(memory.data(), host, bytes);
//   queue.synchronize();
//
// Note [Order of work]
// Operators, copies and vector arithmetic execute one after the other in the order of the calls. On the CPU a call
// returns when its work is done; on a GPU it only enqueues, and synchronize() waits for all of it, wait_for() for that
// before a mark. Pointers are device memory unless named host. So the same code works on both, provided that the host
// reads results only after waiting.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "backend/memory.h"

namespace ddp {

// Recorded work that can be enqueued again as a whole, on the same memory.
class Recording {
 public:
  Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

// Indices of mark() are from 0 to kMarks - 1.
inline constexpr std::size_t kMarks = 128;

class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  virtual ~DeviceMemory() = default;

  // Whether device memory is host memory and calls return when their work is done. Only for helpers that avoid copies
  // (host_mirror.h, staging.h, comm/sums/staged.cpp); a step is the same on both.
  virtual bool on_host() const = 0;
  // Zeroed device memory. Throws Error(out_of_memory) naming `purpose`, a plural such as "the activations".
  virtual Memory allocate(std::size_t bytes, const std::string& purpose) = 0;
  // Zeroed host memory for fast copies (page-locked for a GPU).
  virtual Memory allocate_for_transfer(std::size_t bytes, const std::string& purpose) = 0;
  // Bytes of device memory that allocate() can still give; 0: unknown.
  virtual std::size_t available_bytes() const { return 0; }
};

class DeviceQueue : public DeviceMemory {
 public:
  // --- Work, see Note [Order of work].

  // Host memory to the device and back. The host memory must stay valid and unchanged until synchronize().
  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  // Host memory to the device beside the queue's work: it begins at once, so no work enqueued so far may use this device
  // memory. Work enqueued after join_uploads() sees it. Neither can be recorded.
  virtual void upload_beside(void* device, const void* host, std::size_t bytes) = 0;
  virtual void join_uploads() = 0;
  // Records a time mark in the order of work, for seconds_between(). An index may be reused.
  virtual void mark(std::size_t place) = 0;

  // --- Waiting.

  virtual void synchronize() = 0;
  // Whether the work before the last mark() of this index is done, and a wait until it is. Not for marks in recordings.
  virtual bool reached(std::size_t place) = 0;
  virtual void wait_for(std::size_t place) = 0;
  // Device time in seconds between two marks, after a wait for both.
  virtual double seconds_between(std::size_t from, std::size_t to) const = 0;
  // Records the work that `enqueue` enqueues, without executing it; null if the device does not support this.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& enqueue) = 0;
  // The native handle of the queue for the vendor's libraries, e.g. a cudaStream_t.
  virtual void* native_stream() { return nullptr; }
};

}  // namespace ddp
