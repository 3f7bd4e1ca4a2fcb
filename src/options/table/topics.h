// The topics of the table of options that have files of their own.
//
//   std::vector<OptionSpec> table;
//   add_data_options(table);   // appends the topics data and augmentation
#pragma once

#include <vector>

#include "options/table/table.h"

namespace ddp {

void add_data_options(std::vector<OptionSpec>& table);
// The topics optimizer, parameters, schedule and training.
void add_training_options(std::vector<OptionSpec>& table);
// The topic commands.
void add_command_options(std::vector<OptionSpec>& table);

}  // namespace ddp
