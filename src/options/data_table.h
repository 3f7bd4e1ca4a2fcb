// The options of the topic "data": data sets, loading and augmentation.
//
//   std::vector<OptionSpec> table;
//   add_data_options(table);
#pragma once

#include <vector>

#include "options/table.h"

namespace ddp {

void add_data_options(std::vector<OptionSpec>& table);

}  // namespace ddp
