// The last operator of a network: softmax cross-entropy over logits [batch][classes].
//
//   LossSpec spec{.batch = 64, .classes = 10, .label_smoothing = 0.1F};
//   LossArguments loss{.spec = spec};
//   backend.ops().make_op(spec, Layout::plain, Layout::plain, "")->forward({.active = 50, .loss = &loss});
//
// One kernel computes value and gradient, in forward; there is no backward pass. The operator that computes the logits may do this
// work too, see LossArguments::done.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/activations.h"
#include "backend/ops/description.h"
#include "backend/ops/simple.h"
#include "base/types/shape.h"

namespace ddp {

struct LossSpec {
  static constexpr std::string_view kKind = "loss";
  static constexpr bool kSimple = true;

  std::int64_t batch = 0;
  std::int64_t classes = 0;
  float label_smoothing = 0;  // Szegedy et al., 2016: the target is (1-s) one-hot + s/classes

  Shape input_shape() const { return {classes, 1, 1}; }
  Shape output() const { return input_shape(); }
  // In training only: an evaluation computes plain cross-entropy.
  float smoothing(bool training) const { return training ? label_smoothing : 0; }
  void describe(Description& text) const { text.add("smoothing", label_smoothing); }
  bool operator==(const LossSpec&) const = default;
};

// ForwardArguments::loss, in memory of the backend's device.
struct LossArguments {
  LossSpec spec;
  const std::int32_t* labels = nullptr;
  Activations gradient = nullptr;  // d(loss sum * gradient_scale)/d(logits), in the logits' layout; null: not computed
  float gradient_scale = 1;        // e.g. 1 / global batch
  double* loss_sum = nullptr;      // written: the sum of the loss over the active samples
  double* correct = nullptr;  // incremented: samples whose largest logit (the first of equal ones) is that of the label
  // Two labels per sample (mixup): the target is w one-hot(label) + (1-w) one-hot(other), and the correct class is the
  // label with the larger weight, the first if equal. Both pointers or neither.
  const std::int32_t* other_labels = nullptr;  // [active]; null: not mixed
  const float* label_weights = nullptr;        // [active], w from 0 to 1
  // Another factor of the gradient, which is read when the work runs; null: none.
  const double* loss_scale = nullptr;
  // Set by an operator that has computed the loss of its result.
  bool done = false;
};

std::unique_ptr<Op> make_cpu_op(const LossSpec& spec, Layout layout);
namespace cuda {
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const LossSpec& spec, Layout layout);
}  // namespace cuda

}  // namespace ddp
