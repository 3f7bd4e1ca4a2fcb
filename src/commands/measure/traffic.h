// The table of what a training step costs a GPU: kernels, bytes and floating-point operations of each stage, of the command plan.
//
//   print_traffic(options, *prepared.backend, *prepared.engine.network);
#pragma once

#include "backend/backend.h"
#include "model/network.h"
#include "options/options.h"

namespace ddp {

// Estimated from shapes and the plan (backend/traffic.h). The last line is the sum, for one shard of one rank.
void print_traffic(const Options& options, Backend& backend, Network& network);

}  // namespace ddp
