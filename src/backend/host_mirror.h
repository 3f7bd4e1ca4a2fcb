// A host copy of a flat buffer in device memory, for checkpoints, broadcasts and initialisation.
//
//   HostMirror weights(backend.queue(), device_floats, count);
//   initialize(weights.values());
//   weights.push();                     // to the device
//   weights.fetch(); save(weights.values());
//
// If device memory is host memory, values() is that memory itself and nothing is copied.
#pragma once

#include <cstddef>
#include <span>

#include "backend/device_queue.h"

namespace ddp {

class HostMirror {
 public:
  HostMirror(DeviceQueue& queue, float* device, std::size_t count);

  std::span<float> values() const { return values_; }
  // Waits for the device's work so far and copies its values to the host.
  void fetch();
  // Copies the values to the device; work enqueued later sees them.
  void push();

 private:
  DeviceQueue& queue_;
  float* device_;
  Memory copy_;
  std::span<float> values_;
};

}  // namespace ddp
