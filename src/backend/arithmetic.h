// The arithmetic of single elements, the same on every device: loops on the CPU and kernels on a GPU call it.
//
//   for (std::int64_t i = 0; i < n; ++i) y[i] = relu(x[i]);
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/types/host_device.h"

namespace ddp {

// NaNs propagate, so that a broken weight shows in the loss.
DDP_HOST_DEVICE inline float relu(float x) { return x < 0.0F ? 0.0F : x; }
// The gradient before ReLU, from its output (or its input, which is positive for the same elements).
DDP_HOST_DEVICE inline float relu_gradient(float y, float dy) { return y <= 0.0F ? 0.0F : dy; }

// Whether dropout keeps an element: a hash of the sample's key, the operator's stream and the element's index in
// PyTorch's order within the sample, by the finalizer of SplitMix64 (Steele, Lea and Flood, 2014), compared with the
// rate.
DDP_HOST_DEVICE inline bool dropout_keeps(std::uint64_t key, std::uint32_t stream, std::uint32_t element, float rate) {
  std::uint64_t z = key + 0x9E3779B97F4A7C15U * (((static_cast<std::uint64_t>(stream) << 32U) | element) + 1U);
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  z ^= z >> 31U;
  return static_cast<float>(z >> 40U) * 0x1p-24F >= rate;
}

// The factor of the elements that dropout keeps.
DDP_HOST_DEVICE inline float dropout_scale(float rate) { return rate < 1.0F ? 1.0F / (1.0F - rate) : 0.0F; }

DDP_HOST_DEVICE inline float pixel_value(std::uint8_t byte, float scale, float shift) {
  return static_cast<float>(byte) * scale + shift;
}

DDP_HOST_DEVICE inline float average_of_four(float a, float b, float c, float d) { return 0.25F * ((a + b) + (c + d)); }

// The initial value of maximum pooling, which then applies larger() to each position of the window.
DDP_HOST_DEVICE inline float below_all() { return -HUGE_VALF; }
DDP_HOST_DEVICE inline float larger(float so_far, float next) { return so_far < next ? next : so_far; }
// Whether a later element of a window replaces an earlier one: the first of equal maxima wins, and NaN replaces any
// number, so that it shows in the loss.
DDP_HOST_DEVICE inline bool wins_maximum(float next, float so_far) { return next > so_far || next != next; }

// The bits of the nearest bfloat16, ties to even; NaN stays NaN.
DDP_HOST_DEVICE inline std::uint16_t bf16_bits(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}
DDP_HOST_DEVICE inline float float_of_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16U;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// Whether the value is infinite or NaN.
DDP_HOST_DEVICE inline bool is_broken(float value) { return !(std::fabs(value) <= FLT_MAX); }
DDP_HOST_DEVICE inline bool is_broken(double value) { return !(std::fabs(value) <= DBL_MAX); }

// The label of a sample, or two labels with mixup (LossArguments).
struct TargetLabel {
  std::uint32_t label = 0;
  std::uint32_t other = 0;
  float weight = 1;  // of `label`; the other label has 1 - weight
};
DDP_HOST_DEVICE inline TargetLabel target_label(const std::int32_t* labels, const std::int32_t* others,
                                                const float* weights, std::int64_t sample) {
  const auto label = static_cast<std::uint32_t>(labels[sample]);
  if (others == nullptr) return {label, label, 1.0F};
  return {label, static_cast<std::uint32_t>(others[sample]), weights[sample]};
}
// The target probability of a class, 0 to 1.
DDP_HOST_DEVICE inline float share_of(const TargetLabel& target, std::uint32_t c) {
  if (target.label == target.other) return c == target.label ? 1.0F : 0.0F;
  if (c == target.label) return target.weight;
  return c == target.other ? 1 - target.weight : 0.0F;
}
// The correct class.
DDP_HOST_DEVICE inline std::uint32_t answer_of(const TargetLabel& target) {
  return target.weight < 0.5F ? target.other : target.label;
}
// The weighted sum of the labels' logits.
DDP_HOST_DEVICE inline float target_logit(const TargetLabel& target, float label_logit, float other_logit) {
  return target.label == target.other ? label_logit : target.weight * label_logit + (1 - target.weight) * other_logit;
}

// Cross-entropy of one sample with the target (1-s) one-hot + s/classes (Szegedy et al., 2016). `log_sum` is the
// logarithm of the sum of the logits' exponentials.
DDP_HOST_DEVICE inline float cross_entropy(float log_sum, float label_logit, float logit_sum, float classes,
                                           float smoothing) {
  return log_sum - ((1 - smoothing) * label_logit + smoothing * logit_sum / classes);
}
// Its gradient with respect to one logit, whose class has the target probability `share`.
DDP_HOST_DEVICE inline float cross_entropy_gradient(float logit, float log_sum, float share, float classes,
                                                    float smoothing) {
  const float wanted = share * (1 - smoothing) + smoothing / classes;
  return std::exp(logit - log_sum) - wanted;
}

// --- Other activations; their gradients are functions of the output, like relu_gradient.

DDP_HOST_DEVICE inline float relu6(float x) { return x < 0.0F ? 0.0F : x > 6.0F ? 6.0F : x; }
DDP_HOST_DEVICE inline float relu6_gradient(float y, float dy) { return y <= 0.0F || y >= 6.0F ? 0.0F : dy; }
DDP_HOST_DEVICE inline float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }
DDP_HOST_DEVICE inline float sigmoid_gradient(float y, float dy) { return dy * y * (1.0F - y); }
DDP_HOST_DEVICE inline float hyperbolic_tangent(float x) { return std::tanh(x); }
DDP_HOST_DEVICE inline float tanh_gradient(float y, float dy) { return dy * (1.0F - y * y); }

// --- Variances without cancellation if the mean is large compared with the deviations.

// Count, mean and sum of squared deviations of a set of values.
struct Moments {
  float count;
  float mean;
  float squares;
};

// Moments of `count` values from the sums of their differences to one of them, `shift`, and of the squares of these.
// Since the shift is one of the values, rounding errors grow at most linearly: suitable for a few hundred values.
DDP_HOST_DEVICE inline Moments shifted_moments(float count, float shift, float sum, float squares) {
  if (count == 0.0F) return {0.0F, 0.0F, 0.0F};
  const float left = squares - sum * (sum / count);
  return {count, shift + sum / count, left < 0.0F ? 0.0F : left};
}

// The moments of the union of two sets of values (Chan, Golub and LeVeque, 1979).
DDP_HOST_DEVICE inline Moments merged(const Moments& a, const Moments& b) {
  if (a.count == 0.0F) return b;
  if (b.count == 0.0F) return a;
  const float count = a.count + b.count;
  const float share = b.count / count;
  const float apart = b.mean - a.mean;
  return {count, a.mean + apart * share, a.squares + b.squares + apart * apart * (a.count * share)};
}

}  // namespace ddp
