// The table of each stage's speed, of plan and bench --stages.
//
//   print_stages(prepared);
#pragma once

#include "machine/device.h"
#include "train/loop/prepared_run.h"

namespace ddp {

// Times the stages on this rank and prints the table, on the CPU with shares of the peak that its cores reach.
void print_stages(const PreparedRun& prepared);

}  // namespace ddp
