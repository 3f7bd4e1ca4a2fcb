// Names that the examples in the headers of explain use.
#pragma once

#include "explain/findings.h"
#include "metrics/timing.h"

namespace ddp::explain_examples {

extern const RunTiming timing;
extern const RunView& view;
extern const std::vector<StepSample> last_steps;

}  // namespace ddp::explain_examples
