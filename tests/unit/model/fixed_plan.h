// Plans for tests: each stage in a given layout, with the kernels that are chosen by rule.
//
//   const LayoutPlan plan = fixed_plan(*backend, stages, [](const OpSpec&) { return Layout::nhwc; });
#pragma once

#include <vector>

#include "backend/backend.h"
#include "model/layout_plan.h"
#include "model/stages.h"

namespace ddp {

template <class LayoutOf>
LayoutPlan fixed_plan(Backend& backend, const std::vector<Stage>& stages, const LayoutOf& layout_of) {
  LayoutPlan plan;
  for (const Stage& stage : stages) {
    const Layout layout = layout_of(stage.spec);
    plan.stages.push_back(
        {stage.name, layout, backend.chooser().choose(stage.spec, layout, layout, ChoiceMode::fixed).kernels});
  }
  return plan;
}

}  // namespace ddp
