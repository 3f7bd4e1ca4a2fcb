// The arithmetic of single elements, the same on every device: loops on the CPU and kernels on a GPU call it.
//
//   for (std::int64_t i = 0; i < n; ++i) y[i] = relu(x[i]);
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "backend/host_device.h"

namespace ddp {

// What is no number passes through, so that a broken weight shows in the loss.
DDP_HOST_DEVICE inline float relu(float x) { return x < 0.0F ? 0.0F : x; }
// The gradient before ReLU, from its result (or from what went in: the two have the same sign).
DDP_HOST_DEVICE inline float relu_gradient(float y, float dy) { return y <= 0.0F ? 0.0F : dy; }

// Whether dropout keeps an element: a hash of the sample's key, the operator's stream and the element's place in
// PyTorch's order within the sample, by the finalizer of SplitMix64 (Steele, Lea and Flood, 2014), compared with the
// rate.
DDP_HOST_DEVICE inline bool dropout_keeps(std::uint64_t key, std::uint32_t stream, std::uint32_t element, float rate) {
  std::uint64_t z = key + 0x9E3779B97F4A7C15U * (((static_cast<std::uint64_t>(stream) << 32U) | element) + 1U);
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  z ^= z >> 31U;
  return static_cast<float>(z >> 40U) * 0x1p-24F >= rate;
}

// What dropout multiplies the elements by that it keeps.
DDP_HOST_DEVICE inline float dropout_scale(float rate) { return rate < 1.0F ? 1.0F / (1.0F - rate) : 0.0F; }

DDP_HOST_DEVICE inline float pixel_value(std::uint8_t byte, float scale, float shift) {
  return static_cast<float>(byte) * scale + shift;
}

DDP_HOST_DEVICE inline float average_of_four(float a, float b, float c, float d) { return 0.25F * ((a + b) + (c + d)); }

// Maximum pooling begins with this and goes on with larger(), window position by window position.
DDP_HOST_DEVICE inline float below_all() { return -HUGE_VALF; }
DDP_HOST_DEVICE inline float larger(float so_far, float next) { return so_far < next ? next : so_far; }
// Whether a later element of a window wins over an earlier one: the first of equal maxima stays, and what is no number
// wins, so that it shows in the loss.
DDP_HOST_DEVICE inline bool wins_maximum(float next, float so_far) { return next > so_far || next != next; }

// The nearest number in bfloat16, ties to even, as bits; what is no number stays none.
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

// Whether a number is infinite or NaN.
DDP_HOST_DEVICE inline bool is_broken(float value) { return !(std::fabs(value) <= FLT_MAX); }
DDP_HOST_DEVICE inline bool is_broken(double value) { return !(std::fabs(value) <= DBL_MAX); }

// Cross-entropy of one sample with the target (1-s) one-hot + s/classes (Szegedy et al., 2016). `log_sum` is the
// logarithm of the sum of the logits' exponentials.
DDP_HOST_DEVICE inline float cross_entropy(float log_sum, float label_logit, float logit_sum, float classes,
                                           float smoothing) {
  return log_sum - ((1 - smoothing) * label_logit + smoothing * logit_sum / classes);
}
// Its gradient with respect to one logit.
DDP_HOST_DEVICE inline float cross_entropy_gradient(float logit, float log_sum, bool is_label, float classes,
                                                    float smoothing) {
  const float wanted = (is_label ? 1 - smoothing : 0.0F) + smoothing / classes;
  return std::exp(logit - log_sum) - wanted;
}

// --- Activations beside ReLU; gradients from the result, as relu_gradient.

DDP_HOST_DEVICE inline float relu6(float x) { return x < 0.0F ? 0.0F : x > 6.0F ? 6.0F : x; }
DDP_HOST_DEVICE inline float relu6_gradient(float y, float dy) { return y <= 0.0F || y >= 6.0F ? 0.0F : dy; }
DDP_HOST_DEVICE inline float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }
DDP_HOST_DEVICE inline float sigmoid_gradient(float y, float dy) { return dy * y * (1.0F - y); }
DDP_HOST_DEVICE inline float hyperbolic_tangent(float x) { return std::tanh(x); }
DDP_HOST_DEVICE inline float tanh_gradient(float y, float dy) { return dy * (1.0F - y * y); }

}  // namespace ddp
