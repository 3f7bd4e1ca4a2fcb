// A point in the work of a CUDA stream, without its time, which takes more of CUDA's functions than some callers link.
//
//   const std::unique_ptr<DeviceEvent> done = queue.make_event();
//   DDP_CUDA(cudaEventRecord(StreamEvent::handle_of(*done), stream));
#pragma once

#include "backend/cuda/device/handles.h"
#include "backend/device_queue.h"

namespace ddp::cuda {

class StreamEvent : public DeviceEvent {
 public:
  bool reached() final {
    const cudaError_t state = cudaEventQuery(event_.get());
    if (state == cudaErrorNotReady) return false;
    DDP_CUDA(state);
    return true;
  }
  void wait() final { DDP_CUDA(cudaEventSynchronize(event_.get())); }
  static cudaEvent_t handle_of(const DeviceEvent& event) { return static_cast<const StreamEvent&>(event).event_.get(); }

 private:
  Event event_;
};

}  // namespace ddp::cuda
