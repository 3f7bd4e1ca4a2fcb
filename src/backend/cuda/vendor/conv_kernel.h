// A kernel for one direction of a convolution, cuDNN's or our own, and its name in a run's plan.
//
//   std::unique_ptr<ConvKernel> kernel = make_conv_kernel(context, problem, EngineChoice::from_text("own.depthwise"));
//   kernel->execute({.x = x, .w = packed, .y = y}, workspace);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/vendor/conv_problem.h"

namespace ddp::cuda {

// "own.depthwise", or a cuDNN engine: "cudnn.28" or, with knob values, "cudnn.67,13:32,14:3".
struct EngineChoice {
  std::int64_t engine = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> knobs;  // cuDNN's knob type, value
  bool depthwise = false;                                    // the kernels of depthwise.cu instead of an engine

  std::string text() const;
  // Throws Error(preflight) for any other text.
  static EngineChoice from_text(const std::string& text);
};

class ConvKernel {
 public:
  static constexpr std::size_t kDescriptorBytes = 4096;

  ConvKernel() = default;
  ConvKernel(const ConvKernel&) = delete;
  ConvKernel& operator=(const ConvKernel&) = delete;
  ConvKernel(ConvKernel&&) = default;
  ConvKernel& operator=(ConvKernel&&) = default;
  virtual ~ConvKernel() = default;

  virtual const EngineChoice& choice() const = 0;
  virtual std::size_t workspace_bytes() const = 0;
  // Kernels that execute() starts. What cuDNN does is not known: at least two with a workspace that one kernel writes and
  // another reads, and that is larger than descriptors of tensors.
  virtual std::int64_t kernels() const { return workspace_bytes() > kDescriptorBytes ? 2 : 1; }
  // Enqueues the kernel.
  virtual void execute(const ConvPointers& pointers, void* workspace) = 0;
};

}  // namespace ddp::cuda
