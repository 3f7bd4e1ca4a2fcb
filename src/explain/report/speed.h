// The part of a report about the speed: the verdict in sentences, and where the time went.
//
//   std::string html = verdicts(runs) + speed_charts(runs);
#pragma once

#include <span>
#include <string>

#include "explain/report/report.h"

namespace ddp {

std::string verdicts(std::span<const ReportedRun> runs);
// Images per second, the share of the peak, and the phases of rank 0 over time and of all ranks.
std::string speed_charts(std::span<const ReportedRun> runs);

}  // namespace ddp
