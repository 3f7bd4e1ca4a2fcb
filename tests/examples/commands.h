// Names that the examples in the headers of commands use.
#pragma once

#include <string>

#include "commands/ranks.h"
#include "train/experiment.h"

namespace ddp::commands_examples {

extern const Ranks ranks;
extern const Experiment& experiment;
void print(const std::string& text);

}  // namespace ddp::commands_examples
