// The time that an operator takes, on random values of its own.
//
//   const Timing time = time_op(spec, Layout::lanes16, Layout::lanes16, *op);
#pragma once

#include "backend/op.h"

namespace ddp {

struct Timing {
  double forward = 0;  // seconds, the least of a few rounds
  double backward = 0;
};

// Allocates what the operator needs and runs it forward and backward on the whole batch.
Timing time_op(const OpSpec& spec, Layout x, Layout y, Op& op);

}  // namespace ddp
