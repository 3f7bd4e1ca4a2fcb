// The table of each stage's speed, of plan and bench --stages.
//
//   print_stages(ranks.device, experiment);
#pragma once

#include "machine/device.h"
#include "train/experiment.h"

namespace ddp {

// Times the stages on this rank and prints the table, on the CPU with shares of the peak that its cores reach.
void print_stages(const Device& device, const Experiment& e);

}  // namespace ddp
