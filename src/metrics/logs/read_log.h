// Reads the logs that run_log.h writes, for comparisons and reports.
//
//   const std::vector<StepRecord> steps = read_steps("runs/a");   // steps.csv
//   const RunHistory history = read_history("runs/a");            // metrics.jsonl
//   history.evaluations.back().val_accuracy;
//   const std::vector<EpochRecord> epochs = read_summary("runs/a");   // summary.csv
//
// Lines that are damaged or not complete yet, because the run still goes on, are skipped.
#pragma once

#include <filesystem>
#include <vector>

#include "metrics/logs/run_log.h"

namespace ddp {

// Throws Error(checkpoint) if there is no such file or it is not one that this version understands.
std::vector<StepRecord> read_steps(const std::filesystem::path& run_dir);

struct RunHistory {
  std::vector<TrainRecord> training;
  std::vector<EvalRecord> evaluations;
};
// The same. What older versions did not write stays unset.
RunHistory read_history(const std::filesystem::path& run_dir);

// The same, but empty if there is no such file yet.
std::vector<EpochRecord> read_summary(const std::filesystem::path& run_dir);

}  // namespace ddp
