// Names that the examples in the headers of commands use.
#pragma once

#include <string>

#include "commands/ranks.h"
#include "commands/sweep_group.h"
#include "metrics/timing.h"
#include "train/experiment.h"
#include "train/trainer.h"

namespace ddp::commands_examples {

extern const Ranks ranks;
extern Trainer& trainer;
extern const MpiSession& session;
extern Communicator& communicator;
extern const Topology& topology;
extern const Options& options;
extern const RunTiming& timing;
extern const Experiment& experiment;
void print(const std::string& text);

}  // namespace ddp::commands_examples
