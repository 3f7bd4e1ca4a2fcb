#include "backend/cuda/vendor/conv_plans.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"

namespace ddp::cuda {
namespace {

// Collects plans until there are enough.
class PlanList {
 public:
  PlanList(const ConvGraph& graph, const PlanLimits& limits, const std::function<bool(ConvKernel&)>& usable)
      : graph_(graph), limits_(limits), usable_(usable) {}

  bool full() const { return plans_.size() >= limits_.most; }

  void try_config(Descriptor config) {
    if (!tried_.insert(choice_of(config).text()).second) return;
    std::optional<ConvPlan> plan;
    try {
      plan.emplace(graph_, std::move(config));
    } catch (const Error& error) {
      // Proposed by the heuristic but not supported for this shape; try the next one.
      if (error.code() != ExitCode::preflight) throw;
      return;
    }
    if (plan->workspace_bytes() > limits_.workspace) return;
    if (!usable_ || usable_(*plan)) plans_.push_back(std::move(*plan));
  }

  std::vector<ConvPlan> take() { return std::exchange(plans_, {}); }

 private:
  const ConvGraph& graph_;
  PlanLimits limits_;
  const std::function<bool(ConvKernel&)>& usable_;
  std::set<std::string> tried_;
  std::vector<ConvPlan> plans_;
};

}  // namespace

std::vector<ConvPlan> conv_plans(const ConvGraph& graph, Precision precision, const PlanLimits& limits,
                                 const std::function<bool(ConvKernel&)>& usable) {
  PlanList plans(graph, limits, usable);
  std::vector<Descriptor> compiled;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (plans.full()) break;
    for (Descriptor& config : graph.engine_configs(mode)) {
      if (plans.full()) break;
      const EngineNotes notes = notes_of(config);
      if (!engine_allowed(notes, precision, limits.deterministic)) continue;
      if (notes.compiles) {
        compiled.push_back(std::move(config));
      } else {
        plans.try_config(std::move(config));
      }
    }
  }
  std::vector<ConvPlan> ready = plans.take();
  // Run-time compiled engines take seconds each and are used only if there are no others.
  if (!ready.empty()) return ready;
  for (Descriptor& config : compiled) {
    if (plans.full()) break;
    plans.try_config(std::move(config));
  }
  return plans.take();
}

std::string to_text(const ConvKernels& kernels, bool input_gradient) {
  std::string text = fmt::format("forward={}", kernels.forward.text());
  if (input_gradient) text += fmt::format(" data={}", kernels.data.text());
  if (input_gradient && kernels.adding) text += fmt::format(" adding={}", kernels.adding->text());
  return text + fmt::format(" weights={}", kernels.weights.text());
}

ConvKernels conv_kernels_from_text(const std::string& text, bool input_gradient) {
  const auto found = [&](const std::string& key) -> std::optional<EngineChoice> {
    const std::string wanted = key + "=";
    std::size_t begin = 0;
    while (begin < text.size() && text.compare(begin, wanted.size(), wanted) != 0) {
      begin = std::min(text.find(' ', begin), text.size() - 1) + 1;
    }
    if (begin >= text.size()) return std::nullopt;
    begin += wanted.size();
    return EngineChoice::from_text(text.substr(begin, text.find(' ', begin) - begin));
  };
  const auto choice = [&](const std::string& key) {
    const std::optional<EngineChoice> kernel = found(key);
    check(kernel.has_value(), ExitCode::preflight, "the plan '{}' does not name a kernel for '{}'", text, key);
    return *kernel;
  };
  ConvKernels kernels;
  kernels.forward = choice("forward");
  if (input_gradient) {
    kernels.data = choice("data");
    kernels.adding = found("adding");
  }
  kernels.weights = choice("weights");
  return kernels;
}

}  // namespace ddp::cuda
