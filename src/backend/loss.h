// The two ends of a network: image input and loss. All pointers are memory of the backend's device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/activations.h"
#include "backend/tensor.h"
#include "backend/update/table_rows.h"
#include "backend/weight_packing.h"
#include "base/types/image_edit.h"

namespace ddp {

// The conversion of image bytes to the first activation.
struct InputSpec {
  std::int64_t batch = 0;
  Shape image;    // the stored images
  Shape cropped;  // the upper left part that the network reads
  Layout layout = Layout::plain;
  std::vector<float> scale;  // per channel: activation = byte * scale + shift
  std::vector<float> shift;  // per channel
  // For images that are edited while they are read.
  bool edits_reflect = false;           // EditRules::reflects
  std::vector<std::uint8_t> fill = {};  // per channel; empty: images are not edited
};

struct InputArguments {
  const std::uint8_t* pixels = nullptr;  // images [..][C][H][W]
  const std::int32_t* rows = nullptr;    // the index of each sample's image; null: the first `count` in order
  std::int64_t count = 0;                // samples; those from `count` to the stored batch become zero
  Activations x = nullptr;
  const ImageEdit* edits = nullptr;  // [count], for InputSpec::fill; null: images are read as they are
  // What is copied before; `rows` and `edits` may be among it. The cursor stays where it is.
  TableRow step = {};
  // Packed at the same time, as FlatMath::convert_weights() does; only some backends have such weights.
  std::span<const WeightPacking> weights = {};
};

// Softmax cross-entropy over logits [batch][classes].
struct LossSpec {
  std::int64_t batch = 0;
  std::int64_t classes = 0;
  Layout layout = Layout::plain;
  float label_smoothing = 0;  // Szegedy et al., 2016: the target is (1-s) one-hot + s/classes
};

struct LossArguments {
  ConstActivations logits = nullptr;
  const std::int32_t* labels = nullptr;
  std::int64_t active = 0;         // active samples
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
};

class NetworkEnds {
 public:
  NetworkEnds() = default;
  NetworkEnds(const NetworkEnds&) = delete;
  NetworkEnds& operator=(const NetworkEnds&) = delete;
  virtual ~NetworkEnds() = default;

  // Converts bytes to activations in spec.layout; the samples from `count` to the stored batch become zero.
  virtual void load_input(const InputSpec& spec, const InputArguments& arguments) = 0;
  virtual void softmax_cross_entropy(const LossSpec& spec, const LossArguments& arguments) = 0;
};

// The loss of an operator's output, which the operator may compute too; then it sets `done`.
struct LossCall {
  LossSpec spec;
  LossArguments arguments;
  bool done = false;
};

}  // namespace ddp
