// Which layout and which kernels each stage uses. Found once, on rank 0, sent to all ranks, stored with the run: the
// order of additions depends on it, so ranks and resumed runs must share it.
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

// The assignment of layouts with the smallest sum of kernel and reorder times: exact, by eliminating one stage after
// the other (model/elimination.h).
LayoutPlan plan_layouts(Backend& backend, const std::vector<Stage>& stages, ChoiceMode mode);

std::string to_text(const LayoutPlan& plan);
// Throws Error(preflight) for a text that does not belong to these stages.
LayoutPlan layout_plan_from_text(const std::string& text, const std::vector<Stage>& stages);

// Whether a loss can read logits, or a flatten can pass over values, in this layout without moving them.
bool is_vector_layout(Layout layout);

}  // namespace ddp
