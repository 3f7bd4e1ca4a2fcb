// The two ends of a network: its input and its loss. See NetworkEnds.
//
//   cpu_load_input(spec, arguments);
#pragma once

#include "backend/loss.h"
#include "backend/op.h"

namespace ddp {

void cpu_load_input(const InputSpec& spec, const InputArguments& arguments);
void cpu_softmax_cross_entropy(const LossSpec& spec, const LossArguments& arguments);

}  // namespace ddp
