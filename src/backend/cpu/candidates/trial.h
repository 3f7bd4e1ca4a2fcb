// Times operators of one spec on random values.
//
//   Trial trial(spec, Layout::lanes16, Layout::lanes16);
//   double seconds = trial.forward_seconds(*op);
//   double others = trial.forward_seconds(*other, seconds);   // stops as soon as it is clearly slower
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "backend/memory.h"
#include "backend/op.h"

namespace ddp {

class Trial {
 public:
  static constexpr double kNoRival = std::numeric_limits<double>::infinity();

  // Allocates and fills the tensors of an operator of this spec, once for all candidates.
  Trial(const OpSpec& spec, Layout x, Layout y, Element element = Element::fp32)
      : Trial(std::span(&spec, 1), x, y, element) {}
  // A trial of an operator that joins several.
  Trial(std::span<const OpSpec> specs, Layout x, Layout y, Element element);

  // Seconds of one pass over the whole batch, the minimum of a few rounds, and of fewer once it is clear that it is
  // slower than the rival.
  double forward_seconds(Op& op, double rival = kNoRival);
  // Runs forward before if none of the operators has, for the saved values: candidates save the same.
  double backward_seconds(Op& op, double rival = kNoRival);

 private:
  void prepare(const Op& op);

  Memory memory_;           // shared by all candidates
  Memory saved_;            // as large as the largest candidate's
  Memory workspace_;        // likewise
  bool has_saved_ = false;  // by a forward pass
  std::vector<ConstActivations> inputs_;
  std::vector<Activations> input_gradients_;
  std::vector<const float*> parameters_;
  std::vector<float*> gradients_;
  ForwardArguments forward_;
  BackwardArguments backward_;
};

}  // namespace ddp
