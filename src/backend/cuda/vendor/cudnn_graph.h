// The subset of cuDNN's graph API for a single convolution: the operation graph, the engines that support it on a GPU,
// and an execution plan.
//
//   const ConvGraph graph({spec, ConvDirection::forward, Precision::bf16}, target);
//   for (const Descriptor& config : graph.engine_configs(CUDNN_HEUR_MODE_A)) ...
//   const ConvPlan plan(graph, EngineChoice::from_text("cudnn.28,2:5"));
//   plan.execute({.x = x, .w = packed, .y = y}, workspace);
//
// All activations are nhwc and weights [K][R][S][C]. Planning needs no GPU, only a description of one.
#pragma once

#include <cudnn.h>
#include <cudnn_backend.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/device/element.h"
#include "backend/cuda/vendor/conv_kernel.h"

namespace ddp::cuda {

// One of cuDNN's descriptors: attributes are set, then it is finalized and never changed again.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);

  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                  const void* values);
  Descriptor& set(cudnnBackendAttributeName_t name, std::initializer_list<std::int64_t> values);
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& value);
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<const Descriptor> values);
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  Descriptor& set(cudnnBackendAttributeName_t name, float value);
  void finalize();

  // Reads an attribute: one integer, or a list of `T` (a cuDNN enumeration).
  std::int64_t integer(cudnnBackendAttributeName_t name) const;
  template <class T>
  std::vector<T> list(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
    std::int64_t count = 0;
    read(name, type, 0, &count, nullptr);
    std::vector<T> values(static_cast<std::size_t>(count));
    if (count > 0) read(name, type, count, &count, values.data());
    values.resize(static_cast<std::size_t>(count));
    return values;
  }
  // The descriptors of the given type in an attribute; at most `most`, or all if 0.
  std::vector<Descriptor> children(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                                   std::int64_t most = 0) const;

 private:
  struct Destroy {
    void operator()(void* descriptor) const noexcept { static_cast<void>(cudnnBackendDestroyDescriptor(descriptor)); }
  };
  void read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t capacity,
            std::int64_t* count, void* values) const;

  std::unique_ptr<void, Destroy> descriptor_;
};

// The target GPU of plans: a present GPU, given by a handle, or one that is only described.
struct PlanTarget {
  cudnnHandle_t handle = nullptr;
  const Descriptor* described = nullptr;  // if there is no handle
};

// A GPU's description from cuDNN's JSON for it, e.g. {"deviceVer":900,...}.
Descriptor describe_gpu(const std::string& json);

// cuDNN's notes about an engine.
struct EngineNotes {
  bool tensor_core = false;
  bool down_converts = false;     // computes in less than the type of its input
  bool reduced_sums = false;      // sums in less than fp32
  bool nondeterministic = false;  // sums in an order that changes from run to run
  bool fft = false;               // by Fourier transforms: errors of 1e-5 of a tensor's largest value and more
  bool winograd_4x4 = false;      // transforms with tiles of 4 x 4, which lose a digit
  bool rough_winograd = false;    // transforms with larger tiles, which lose several digits
  bool compiles = false;          // is compiled at run time, in seconds
};

// Whether an engine satisfies the precision of a run. fp32 excludes tensor cores, which convert fp32 inputs to tf32
// with 10 bits of mantissa, and Fourier and Winograd transforms, whose errors exceed 1e-5, unlike direct sums.
bool engine_allowed(const EngineNotes& notes, Precision precision, bool deterministic);

class ConvGraph {
 public:
  ConvGraph(const ConvProblem& problem, const PlanTarget& target);

  // The engine configurations that cuDNN proposes, in the order of its heuristic; empty if there are none.
  std::vector<Descriptor> engine_configs(cudnnBackendHeurMode_t mode) const;
  const Descriptor& graph() const { return graph_; }
  const PlanTarget& target() const { return target_; }

 private:
  PlanTarget target_;
  Descriptor x_, w_, y_;
  Descriptor convolution_;
  Descriptor operation_;
  Descriptor graph_;
};

EngineChoice choice_of(const Descriptor& engine_config);
EngineNotes notes_of(const Descriptor& engine_config);

// Builds the plan. Throws Error(preflight) if cuDNN does not support it on this GPU.
class ConvPlan final : public ConvKernel {
 public:
  ConvPlan(const ConvGraph& graph, Descriptor engine_config);
  ConvPlan(const ConvGraph& graph, const EngineChoice& choice);

  const EngineChoice& choice() const override { return choice_; }
  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  void execute(const ConvPointers& pointers, void* workspace) override;

 private:
  cudnnHandle_t handle_;
  Descriptor config_;
  EngineChoice choice_;
  Descriptor plan_;
  std::size_t workspace_bytes_ = 0;
  // The memory of the last execution, which is the same in every training step.
  ConvPointers packed_for_;
  void* packed_workspace_ = nullptr;
  std::unique_ptr<Descriptor> pack_;
};

}  // namespace ddp::cuda
