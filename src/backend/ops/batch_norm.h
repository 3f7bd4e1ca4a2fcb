// Batch normalisation (Ioffe and Szegedy, 2015), optionally followed by the sum with a second input, and then by ReLU
// or ReLU6: y = activation(weight * (x - mean) / sqrt(variance + epsilon) + bias + x2).
//
//   BatchNormSpec spec{.batch = 64, .shape = {64, 56, 56}, .activation = Activation::relu};
//
// In training, mean and variance are those of the active samples, and the running statistics move towards them: running
// += momentum * (batch's - running), with the unbiased variance (divided by n - 1, or by n if n = 1); without active
// samples they do not change. In evaluation, mean and variance are the running statistics. Weight and bias [channels];
// running statistics [2][channels]: means, then variances.
//
// If `synchronized`, mean and variance are those of the active samples of all logical shards, and backward uses their
// sums too: all shards call an operator at the same time, and exchange sums in double precision (SumOverShards). The
// gradients of weight and bias stay those of the shard.
//
// If `frozen`, mean and variance are the running statistics in training too: these do not change, and the gradient of x is
// that of a line.
//
// With `input_bias` there is a third parameter b [channels], and x + b is normalised without being computed: in
// training b cancels out and only the running means contain it, so its gradient is zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backend/ops/activation.h"

namespace ddp {

struct BatchNormSpec {
  static constexpr std::string_view kKind = "batchnorm";

  std::int64_t batch = 0;
  Shape shape;
  float epsilon = 1e-5F;
  float momentum = 0.1F;
  Activation activation = Activation::none;
  bool add = false;         // whether there is a second input
  bool input_bias = false;  // only if BackendTraits::takes_bias_into_norm
  bool synchronized = false;
  bool frozen = false;

  constexpr int inputs() const { return add ? 2 : 1; }
  constexpr std::int64_t parameter_elements(std::size_t which) const {
    return which < 2 || (which == 2 && input_bias) ? shape.channels : 0;
  }
  constexpr std::int64_t statistic_elements() const { return 2 * shape.channels; }
  void describe(Description& text) const {
    text.add("activation", to_string(activation)).add("add", add).add("inputbias", input_bias);
    if (synchronized) text.add("synchronized", true);
    if (frozen) text.add("frozen", true);
  }
  bool operator==(const BatchNormSpec&) const = default;
};

}  // namespace ddp
