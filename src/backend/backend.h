// A backend is one device: its queue of work, its operators, and vector arithmetic on flat buffers.
//
//   std::unique_ptr<Backend> backend = make_cpu_backend();
//   KernelChoice choice = backend->ops().choose(spec, Layout::plain, Layout::lanes16, ChoiceMode::timed);
//   Memory memory = backend->queue().allocate(bytes, "the activations");
//   backend->math().add(sum, addend, count);
//
// Everything is carried out in the order of the calls: Note [Order of work] in backend/device_queue.h.
#pragma once

#include <memory>
#include <utility>

#include "backend/device_queue.h"
#include "backend/flat_math.h"
#include "backend/op_factory.h"

namespace ddp {

class Backend {
 public:
  // Operators and arithmetic may use the queue as long as they live. What a test does not use may be null.
  Backend(std::unique_ptr<DeviceQueue> queue, std::unique_ptr<OpFactory> ops, std::unique_ptr<FlatMath> math)
      : queue_(std::move(queue)), ops_(std::move(ops)), math_(std::move(math)) {}

  DeviceQueue& queue() const { return *queue_; }
  OpFactory& ops() const { return *ops_; }
  FlatMath& math() const { return *math_; }

 private:
  std::unique_ptr<DeviceQueue> queue_;
  std::unique_ptr<OpFactory> ops_;
  std::unique_ptr<FlatMath> math_;
};

// The backend of CPU cores: oneDNN and kernels of our own. Uses as many threads as OpenMP is set to. In the calling
// thread, in OpenMP's and in all that they start later, denormal numbers are zero from here on.
std::unique_ptr<Backend> make_cpu_backend();
// Its parts, for tests that replace one of them.
std::unique_ptr<OpFactory> make_cpu_ops();
std::unique_ptr<FlatMath> make_cpu_math();

}  // namespace ddp
