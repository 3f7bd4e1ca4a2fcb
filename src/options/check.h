// Rejects contradictory options of the optimizer, the schedule and the data.
//
//   check_optimizer(options.optimizer);   // throws for --optimizer adam --momentum 0.9
#pragma once

#include "options/options.h"

namespace ddp {

// Throw Error(usage) that names the options and the remedy. Options that the chosen optimizer or schedule does not use
// must have their default value, except --lr-step-epochs, --lr-gamma and --lr-min.
void check_optimizer(const OptimizerOptions& options);
void check_schedule(const OptimizerOptions& options);
void check_progressive(const DataOptions& options);
void check_loss_scale(const Options& options);

}  // namespace ddp
