// Names that the examples in the headers of explain use.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "explain/findings.h"
#include "explain/report/report.h"
#include "explain/scaling_report.h"
#include "metrics/timing.h"
#include "run_folder/run_folder.h"

namespace ddp::explain_examples {

extern const RunTiming timing;
extern const RunView& view;
extern const std::vector<StepSample> last_steps;
extern const std::vector<ScalingPoint> points, strong, weak;
extern const std::vector<Cure> cures;
extern const StepProbe probe;
extern std::unique_ptr<RunFolder> folder;
extern const std::span<const ReportedRun> runs;

}  // namespace ddp::explain_examples
