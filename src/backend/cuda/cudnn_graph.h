// cuDNN's graph interface, as little of it as one convolution needs: what is to be computed, which engines can do it on
// a GPU, and a plan that does it.
//
//   const ConvGraph graph({spec, ConvDirection::forward, Precision::bf16}, target);
//   for (const Descriptor& config : graph.engine_configs(CUDNN_HEUR_MODE_A)) ...
//   const ConvPlan plan(graph, EngineChoice::from_text("cudnn.28,2:5"));
//   plan.execute({.x = x, .w = packed, .y = y}, workspace);
//
// All activations are nhwc and weights [K][R][S][C]. What is planned needs no GPU: a description of one will do.
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

#include "backend/cuda/conv_kernel.h"
#include "backend/cuda/element.h"

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

  // What cuDNN tells about it. The attribute holds one integer, or a list of `T` (an enumeration of cuDNN's).
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
  // Descriptors that belong to this one, of the given type; at most `most`, 0: as many as there are.
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

// The GPU that plans are for: one that is here, by a handle on it, or one that is only described.
struct PlanTarget {
  cudnnHandle_t handle = nullptr;
  const Descriptor* described = nullptr;  // where there is no handle
};

// A GPU's description from cuDNN's JSON for it, e.g. {"deviceVer":900,...}.
Descriptor describe_gpu(const std::string& json);

// What cuDNN notes about an engine.
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

// Whether an engine computes what a run wants. Note that fp32 leaves out tensor cores: fed with fp32 they compute in
// tf32, with 10 bits of mantissa; and Fourier and Winograd transforms, which cannot keep to 1e-5 as direct sums do.
bool engine_allowed(const EngineNotes& notes, Precision precision, bool deterministic);

class ConvGraph {
 public:
  ConvGraph(const ConvProblem& problem, const PlanTarget& target);

  // The engine configurations that cuDNN proposes, the ones that it expects to be the fastest first; none where it
  // knows none.
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

// Ready to run. Throws Error(preflight) where cuDNN cannot do it this way on this GPU.
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
  // What the plan was run on last: in training the same memory step after step.
  ConvPointers packed_for_;
  void* packed_workspace_ = nullptr;
  std::unique_ptr<Descriptor> pack_;
};

}  // namespace ddp::cuda
