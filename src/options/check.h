// Options of the optimizer and of the schedule that do not go together.
//
//   check_optimizer(options.optimizer);   // throws for --optimizer adam --momentum 0.9
#pragma once

#include "options/options.h"

namespace ddp {

// Throw Error(usage) that names the options and what to give in their place. What only another rule or schedule reads
// must have its default, but for --lr-step-epochs, --lr-gamma and --lr-min, which configurations may keep.
void check_optimizer(const OptimizerOptions& options);
void check_schedule(const OptimizerOptions& options);

}  // namespace ddp
