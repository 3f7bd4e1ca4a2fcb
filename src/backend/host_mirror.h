// A host copy of a flat buffer in device memory, for checkpoints, broadcasts and initialisation.
//
//   HostMirror weights(backend.device(), device_floats, count);
//   initialize(weights.values());
//   weights.push();                     // to the device
//   weights.fetch(); save(weights.values());
//
// If device memory is host memory, values() is that memory itself and nothing is copied.
#pragma once

#include <cstddef>
#include <span>

#include "backend/device_context.h"

namespace ddp {

class HostMirror {
 public:
  HostMirror(const DeviceContext& device, float* values, std::size_t count);

  std::span<float> values() const { return values_; }
  // Waits for the device's work so far and copies its values to the host.
  void fetch();
  // Copies the values to the device; work enqueued later sees them.
  void push();

 private:
  DeviceQueue& queue_;
  float* on_device_;
  Memory copy_;  // none if device memory is host memory
  std::span<float> values_;
};

}  // namespace ddp
