// The layout and the kernels of each stage. Chosen once, broadcast by rank 0, and stored with the run: the order of
// additions depends on the plan, so all ranks and resumed runs must share it.
//
//   LayoutPlan plan = plan_layouts(backend, stages, ChoiceMode::timed);
//   std::string text = to_text(plan);            // a few readable lines
//   LayoutPlan again = layout_plan_from_text(text, stages);
//
// The timing, which takes nearly all of the time, can be divided: each query is answered by itself.
//
//   const std::vector<KernelQuery> queries = kernel_queries(backend.ops(), stages);
//   std::vector<KernelChoice> answers = ...;    // of backend.chooser().choose(), one for each query
//   LayoutPlan plan = plan_layouts(backend.ops(), stages, queries, answers);
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/stages.h"

namespace ddp {

struct StagePlan {
  std::string name;
  Layout layout = Layout::plain;  // of its input and output
  std::string kernels;
  bool separate = false;  // from those after it, though one operator could compute them together (model/joins.h)
};

struct LayoutPlan {
  std::vector<StagePlan> stages;
  double predicted_seconds = 0;  // of one forward and backward pass
};

// One operator in one pair of layouts, whose kernels and time a plan depends on.
struct KernelQuery {
  OpSpec spec;
  Layout from, to;
  std::vector<OpSpec> rest = {};  // what one operator computes together with it (model/joins.h)
  bool operator==(const KernelQuery&) const = default;
};

// All that a plan for these stages depends on, each once, those with the most work first.
std::vector<KernelQuery> kernel_queries(OpFactory& ops, const std::vector<Stage>& stages);
// The answer, by timing.
KernelChoice timed_answer(OpFactory& ops, const KernelQuery& query);

// The plan that follows from the answers to the queries.
LayoutPlan plan_layouts(OpFactory& ops, const std::vector<Stage>& stages, std::span<const KernelQuery> queries,
                        std::span<const KernelChoice> answers);

// The assignment of layouts with the minimal sum of kernel and reorder times, found exactly by variable elimination
// (model/elimination.h). Without times, stages that can be joined count as if they were separate, but are joined where
// the backend expects a gain.
LayoutPlan plan_layouts(Backend& backend, const std::vector<Stage>& stages, ChoiceMode mode);

std::string to_text(const LayoutPlan& plan);
// Throws Error(preflight) if the text does not match these stages.
LayoutPlan layout_plan_from_text(const std::string& text, const std::vector<Stage>& stages);

// Whether a loss can read logits, or a flatten can pass on values, in this layout without a reorder.
bool is_vector_layout(Layout layout);
// Whether that holds of what an operator with this layout writes: a linear layer writes vectors in any layout.
bool writes_vectors(const OpSpec& spec, Layout layout);
// The layout of logits whose stage has no vector layout.
inline constexpr Layout kLayoutOfReorderedLogits = Layout::plain;

}  // namespace ddp
