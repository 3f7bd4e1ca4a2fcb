// The table of what a training step costs a GPU: kernels, bytes and floating-point operations of each stage, of the command plan.
//
//   print_traffic(experiment);
#pragma once

#include "train/experiment.h"

namespace ddp {

// Estimated from shapes and the plan (backend/traffic.h). The last line is the sum, for one shard of one rank.
void print_traffic(const Experiment& e);

}  // namespace ddp
