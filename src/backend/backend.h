// A backend is one device: its memory, its queue of work, its operators, and vector arithmetic on flat buffers.
//
//   std::unique_ptr<Backend> backend = make_cpu_backend();
//   KernelChoice choice = backend->chooser().choose(spec, Layout::plain, Layout::lanes16, ChoiceMode::timed);
//   Memory memory = backend->memory().allocate(bytes, "the activations");
//   backend->math().add(sum, addend, count);
//
// Work is executed in the order of the calls: Note [Order of work] in backend/device_queue.h.
#pragma once

#include <memory>
#include <utility>

#include "backend/choose/kernel_chooser.h"
#include "backend/device_context.h"
#include "backend/op_factory.h"
#include "backend/update/flat_math.h"
#include "base/types/precision.h"

namespace ddp {

class Backend {
 public:
  // Operators and arithmetic may use the device during their lifetime. Tests may pass null for parts that they do not
  // use.
  Backend(std::unique_ptr<DeviceContext> device, std::unique_ptr<OpFactory> ops, std::unique_ptr<FlatMath> math)
      : device_(std::move(device)), ops_(std::move(ops)), math_(std::move(math)) {}

  const DeviceContext& device() const { return *device_; }
  DeviceMemory& memory() const { return device_->memory(); }
  DeviceQueue& queue() const { return device_->queue(); }
  OpFactory& ops() const { return *ops_; }
  KernelChooser& chooser() const { return ops_->chooser(); }
  FlatMath& math() const { return *math_; }

 private:
  std::unique_ptr<DeviceContext> device_;
  std::unique_ptr<OpFactory> ops_;
  std::unique_ptr<FlatMath> math_;
};

// The CPU backend: oneDNN and own kernels, with the number of threads set in OpenMP. Enables flush-to-zero for denormal
// numbers in the calling thread, in OpenMP's threads and in threads that these start later. In bf16, activations and
// their gradients are bf16, and fp32 kernels compute on them (half_op.cpp), in fp16 always; tf32 is computed as fp32, or by AMX.
std::unique_ptr<Backend> make_cpu_backend(Precision precision = Precision::fp32);
// The parts of the CPU backend, for tests that replace one of them.
std::unique_ptr<OpFactory> make_cpu_ops(Precision precision = Precision::fp32);
std::unique_ptr<FlatMath> make_cpu_math();

// What the cores of this process do at most with all of its threads, measured in about 0.2 s: fp32 multiply-adds in
// registers, each of them two operations, and bytes read and written by a copy in memory.
struct DevicePeak {
  double flops = 0;
  double bytes_per_second = 0;
};
DevicePeak measure_cpu_peak();

}  // namespace ddp
