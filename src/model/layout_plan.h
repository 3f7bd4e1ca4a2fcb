// The layout and the kernels of each stage. Chosen once on rank 0, broadcast, and stored with the run: the order of
// additions depends on the plan, so all ranks and resumed runs must share it.
//
//   LayoutPlan plan = plan_layouts(backend, stages, ChoiceMode::timed);
//   std::string text = to_text(plan);            // a few readable lines
//   LayoutPlan again = layout_plan_from_text(text, stages);
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/stages.h"

namespace ddp {

struct StagePlan {
  std::string name;
  Layout layout = Layout::plain;  // of its input and output
  std::string kernels;
};

struct LayoutPlan {
  std::vector<StagePlan> stages;
  double predicted_seconds = 0;  // of one forward and backward pass
};

// The assignment of layouts with the minimal sum of kernel and reorder times, found exactly by variable elimination
// (model/elimination.h).
LayoutPlan plan_layouts(Backend& backend, const std::vector<Stage>& stages, ChoiceMode mode);

std::string to_text(const LayoutPlan& plan);
// Throws Error(preflight) if the text does not match these stages.
LayoutPlan layout_plan_from_text(const std::string& text, const std::vector<Stage>& stages);

// Whether a loss can read logits, or a flatten can pass on values, in this layout without a reorder.
bool is_vector_layout(Layout layout);

}  // namespace ddp
