// The rows that open the output of a run: what is trained, on what, how, and where.
//
//   console.header("ddp_train 0.1.0", header_rows(RunParts{prepared, ranks, run, trainer, resumed}));
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "commands/ranks.h"
#include "metrics/display/console.h"
#include "run_folder/run_folder.h"
#include "train/loop/prepared_run.h"
#include "train/loop/trainer.h"
#include "train/loop/training_run.h"

namespace ddp {

struct RunParts {
  const PreparedRun& prepared;
  const Ranks& ranks;
  TrainingRun& run;
  const Trainer& trainer;
  const std::optional<ResumePoint>& resumed;
};
std::vector<HeaderRow> header_rows(const RunParts& parts);

// "sgd, momentum 0.9 (Nesterov), weight decay 0.0005": the settings that apply to this optimizer, and what else changes
// the update.
std::string optimizer_text(const OptimizerOptions& options);

// "random resized crop, flip, RandAugment 2 x 9"; "none".
std::string augmentation_text(const DataOptions& options);

}  // namespace ddp
