// The time that operators of one spec take, on random values of the trial's own.
//
//   Trial trial(spec, Layout::lanes16, Layout::lanes16);
//   double seconds = trial.forward_seconds(*op);
//   double others = trial.forward_seconds(*other, seconds);   // gives up on it as soon as it is clearly slower
#pragma once

#include <functional>
#include <limits>

#include "backend/memory.h"
#include "backend/op.h"

namespace ddp {

class Trial {
 public:
  static constexpr double kNoRival = std::numeric_limits<double>::infinity();

  // Allocates what an operator of this spec reads and writes, and fills it: once for all candidates.
  Trial(const OpSpec& spec, Layout x, Layout y);

  // Seconds of one pass over the whole batch, the least of a few rounds; of one round only where that took much longer
  // than the rival's seconds.
  double forward_seconds(Op& op, double rival = kNoRival);
  // Runs forward once before, for what the operator keeps.
  double backward_seconds(Op& op, double rival = kNoRival);

 private:
  void prepare(const Op& op);

  Memory memory_;  // of all candidates
  Memory own_;     // what this candidate keeps and its workspace
  ForwardArguments forward_;
  BackwardArguments backward_;
};

}  // namespace ddp
