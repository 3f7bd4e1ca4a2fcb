// A device as a queue of work: its memory, the copies to and from the host, marks in time, and recordings.
//
//   DeviceQueue& queue = backend.queue();
//   Memory memory = queue.allocate(bytes, "the activations");
//   queue.upload(memory.data(), host, bytes);
//   queue.synchronize();
//
// Note [Order of work]
// Operators, copies and vector arithmetic are carried out one after the other in the order of the calls. On the CPU a
// call returns when its work is done; on a GPU it only enqueues, and synchronize() waits. Pointers are device memory
// unless named host. So the same code drives both, as long as the host reads results only after synchronize().
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "backend/memory.h"

namespace ddp {

// Work that was recorded once and is enqueued again as a whole, on the memory that it was recorded with.
class Recording {
 public:
  Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

// mark() takes places from 0 to kMarks - 1.
inline constexpr std::size_t kMarks = 16;

class DeviceQueue {
 public:
  DeviceQueue() = default;
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;
  virtual ~DeviceQueue() = default;

  // --- Memory.

  // Whether device memory is host memory and calls return when their work is done. For helpers that save a copy then
  // (host_mirror.h, staging.h, comm/staged.cpp); a step is the same on both.
  virtual bool on_host() const = 0;
  // Device memory of zeros. Throws Error(out_of_memory) that names `purpose`, a plural such as "the activations".
  virtual Memory allocate(std::size_t bytes, const std::string& purpose) = 0;
  // Host memory of zeros from and to which copies are the fastest.
  virtual Memory allocate_for_transfer(std::size_t bytes, const std::string& purpose) = 0;
  // Bytes of device memory that allocate() can still give; 0: unknown.
  virtual std::size_t available_bytes() const { return 0; }

  // --- Work, see Note [Order of work].

  // Host memory to the device and back. The host's memory must stay as it is until synchronize().
  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  // Marks this place in the order of work, for seconds_between(). A place may be marked again.
  virtual void mark(std::size_t place) = 0;

  // --- Waiting.

  virtual void synchronize() = 0;
  // The device's seconds between two places that were marked, after synchronize().
  virtual double seconds_between(std::size_t from, std::size_t to) const = 0;
  // Records the work that `enqueue` enqueues, without doing it; null where the device cannot.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& enqueue) = 0;
  // The handle that libraries of the device's maker take for the order of work, e.g. a cudaStream_t.
  virtual void* native_stream() { return nullptr; }
};

}  // namespace ddp
