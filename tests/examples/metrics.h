// Names that the examples in the headers of metrics use.
#pragma once

#include <span>

#include "base/status/set_up_progress.h"
#include "metrics/display/console.h"
#include "metrics/timing.h"

namespace ddp::metrics_examples {

extern const RunTiming timing;
extern PhaseClock& phase_clock;
extern const double began;
extern Console& console;
extern const std::span<const SumTimes> sum_times;

}  // namespace ddp::metrics_examples
