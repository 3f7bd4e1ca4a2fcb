// The cuDNN plans for a convolution, and the names of a convolution's kernels in a run's plan.
//
//   const ConvGraph graph(problem, target);
//   std::vector<ConvPlan> plans = conv_plans(graph, problem.precision, {.deterministic = true, .most = 1});
//   ConvKernels kernels = conv_kernels_from_text("forward=cudnn.28 data=cudnn.58,2:1 weights=cudnn.1", true);
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/vendor/cudnn_graph.h"

namespace ddp::cuda {

// Plans that need more workspace than this are skipped; cuDNN has others for every shape.
inline constexpr std::size_t kWorkspaceLimit = std::size_t{512} << 20U;

struct PlanLimits {
  bool deterministic = false;
  std::size_t workspace = kWorkspaceLimit;
  std::size_t most = 1;  // plans
};

// The plans that a run may use, in the order of cuDNN's heuristic; empty if there are none. If given, `usable` is
// called for each plan and filters it: a plan that can be built may still fail when it runs.
std::vector<ConvPlan> conv_plans(const ConvGraph& graph, Precision precision, const PlanLimits& limits,
                                 const std::function<bool(ConvKernel&)>& usable = {});

// A kernel for each direction; `data` and `adding` are used only if the input gradient is needed.
struct ConvKernels {
  EngineChoice forward;
  EngineChoice data;
  EngineChoice weights;
  // For the data gradient when it is added to what is there; nullopt: no kernel is known to do that.
  std::optional<EngineChoice> adding = std::nullopt;
};

std::string to_text(const ConvKernels& kernels, bool input_gradient);
// Throws Error(preflight) for a text without them.
ConvKernels conv_kernels_from_text(const std::string& text, bool input_gradient);

}  // namespace ddp::cuda
