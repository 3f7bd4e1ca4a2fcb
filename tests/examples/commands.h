// Names that the examples in the headers of commands use.
#pragma once

#include <optional>
#include <string>

#include "commands/ranks.h"
#include "commands/sweep_group.h"
#include "metrics/display/console.h"
#include "metrics/timing.h"
#include "run_folder/run_folder.h"
#include "train/loop/prepared_run.h"
#include "train/loop/trainer.h"
#include "train/loop/training_run.h"

namespace ddp::commands_examples {

extern const Ranks ranks;
extern Trainer& trainer;
extern const MpiSession& session;
extern Communicator& communicator;
extern const Topology& topology;
extern const Options& options;
extern const RunTiming& timing;
extern PreparedRun& prepared;
extern TrainingRun& run;
extern const std::optional<ResumePoint>& resumed;
extern Console& console;
void print(const std::string& text);

}  // namespace ddp::commands_examples
