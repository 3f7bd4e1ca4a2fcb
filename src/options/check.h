// Rejects contradictory options.
//
//   check_combinations(options);   // throws for --optimizer adam --momentum 0.9
#pragma once

#include "options/options.h"

namespace ddp {

// Throws Error(usage) that names the options and the remedy. Options that the chosen optimizer or schedule does not use
// must have their default value, except --lr-step-epochs, --lr-gamma and --lr-min.
void check_combinations(const Options& options);

}  // namespace ddp
