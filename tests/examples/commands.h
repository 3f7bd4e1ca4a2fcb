// Names that the examples in the headers of commands use.
#pragma once

#include <string>

#include "commands/ranks.h"

namespace ddp::commands_examples {

extern const Ranks ranks;
void print(const std::string& text);

}  // namespace ddp::commands_examples
