// A queue of a device's work: copies to and from the host, events in the order of work, and recordings.
//
//   DeviceQueue& queue = backend.queue();
//   const std::unique_ptr<DeviceEvent> copied = queue.make_event();
//   queue.upload(memory.data(), host, bytes);
//   queue.mark(*copied);
//   ...                     // more is enqueued
//   copied->wait();         // now `host` may change
//   queue.synchronize();
//
// Note [Order of work]
// Operators, copies and vector arithmetic execute one after the other in the order of the calls. On the CPU a call
// returns when its work is done; on a GPU it only enqueues, and synchronize() waits for all of it, DeviceEvent::wait() for
// that before an event. Pointers are device memory unless named host. So the same code works on both, provided that the host
// reads results only after waiting.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

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

// A place in the order of a queue's work: where DeviceQueue::mark() was last called with it. It must outlive recordings that
// contain it, and waits of a queue for it.
class DeviceEvent {
 public:
  DeviceEvent() = default;
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;
  virtual ~DeviceEvent() = default;

  // Whether the work before it is done, and a wait until it is. Not for events that were last marked in a recording.
  virtual bool reached() = 0;
  virtual void wait() = 0;
  // Device time in seconds since an earlier event of the same queue, after a wait for both.
  virtual double seconds_since(const DeviceEvent& earlier) const = 0;
};

class DeviceQueue {
 public:
  DeviceQueue() = default;
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;
  virtual ~DeviceQueue() = default;

  // --- Work, see Note [Order of work].

  // Host memory to the device and back. The host memory must stay valid and unchanged until synchronize().
  virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
  virtual void download(void* host, const void* device, std::size_t bytes) = 0;
  // An event of this device, for any of its queues.
  virtual std::unique_ptr<DeviceEvent> make_event() = 0;
  virtual void mark(DeviceEvent& event) = 0;
  // Later work waits for what is before the event, usually of another queue. Cannot be recorded.
  virtual void wait_for(const DeviceEvent& event) = 0;

  // --- The host.

  virtual void synchronize() = 0;
  // Records the work that `enqueue` enqueues, without executing it; null if the device does not support this.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& enqueue) = 0;
  // The native handle of the queue for the vendor's libraries, e.g. a cudaStream_t.
  virtual void* native_stream() { return nullptr; }
};

}  // namespace ddp
