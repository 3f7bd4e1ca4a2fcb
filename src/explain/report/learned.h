// The part of a report about what was learned: accuracies, curves over the epochs, and classes.
//
//   std::string html = learned_table(runs) + learned_curves(runs) + epoch_tables(runs) + class_charts(runs);
#pragma once

#include <span>
#include <string>

#include "explain/report/report.h"

namespace ddp {

// A row for each run, with the best accuracy and its epoch.
std::string learned_table(std::span<const ReportedRun> runs);
// The accuracy first.
std::string learned_curves(std::span<const ReportedRun> runs);
std::string epoch_tables(std::span<const ReportedRun> runs);
// Confusion matrices and the worst classes of the last evaluation.
std::string class_charts(std::span<const ReportedRun> runs);

}  // namespace ddp
