// Softmax cross-entropy of one sample: loss, gradient and whether it is predicted rightly, by neighbouring threads.
//
//   SampleLoss mine =
//       sample_loss<4, 4>(in, sample, target_of(in, sample), logits + sample * classes, gradient + sample * classes);
#pragma once

#include <cstdint>

#include "backend/arithmetic.h"
#include "backend/cuda/code/block_sum.cuh"
#include "backend/cuda/code/launch.cuh"
#include "backend/op.h"

namespace ddp::cuda {

// Kernel parameters.
struct LossInputs {
  const std::int32_t* labels;
  const std::int32_t* other_labels;
  const float* label_weights;
  std::uint32_t batch, active, classes;
  float smoothing, gradient_scale;
  double* loss_sum;
  double* correct;
  const double* loss_scale;
};

// `pass`: of the operator that computes the loss.
inline LossInputs loss_inputs(const LossSpec& spec, const ForwardArguments& pass) {
  const LossArguments& loss = *pass.loss;
  return {loss.labels,
          loss.other_labels,
          loss.label_weights,
          static_cast<std::uint32_t>(spec.batch),
          static_cast<std::uint32_t>(pass.active),
          static_cast<std::uint32_t>(spec.classes),
          spec.smoothing(pass.training),
          loss.gradient_scale,
          loss.loss_sum,
          loss.correct,
          loss.loss_scale};
}

// `kGroup` neighbouring threads share a sample; all threads of a warp call these together.
template <unsigned kGroup>
__device__ inline float group_sum(float value) {
#pragma unroll 1
  for (unsigned step = kGroup / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, step);
  return value;
}

struct Largest {
  float value;
  std::uint32_t index;
};

// The first of equal maxima, as on the CPU.
template <unsigned kGroup>
__device__ inline Largest group_largest(Largest mine) {
#pragma unroll 1
  for (unsigned step = kGroup / 2; step > 0; step /= 2) {
    const Largest other{__shfl_xor_sync(0xFFFFFFFFU, mine.value, step), __shfl_xor_sync(0xFFFFFFFFU, mine.index, step)};
    if (other.value > mine.value || (other.value == mine.value && other.index < mine.index)) mine = other;
  }
  return mine;
}

// Values of the first thread of a group; zero in the others and for samples that are not active.
struct SampleLoss {
  double loss;
  double correct;
};

// Target of an active sample; it may be loaded long before the logits are known.
__device__ inline TargetLabel target_of(const LossInputs& in, std::uint32_t sample) {
  if (sample >= in.active) return {};
  return target_label(in.labels, in.other_labels, in.label_weights, sample);
}

// Writes the gradient of the sample's logits, if `gradient` is not null: zero if it is not active. kAtOnce: a thread's logits
// that are read at once; with few classes 1, as code that is longer takes longer to load.
template <unsigned kGroup, unsigned kAtOnce, class T>
__device__ inline SampleLoss sample_loss(const LossInputs& in, std::uint32_t sample, const TargetLabel& target,
                                         const T* logits, T* gradient) {
  const unsigned lane = threadIdx.x % kGroup;
  const bool active = sample < in.active;
  const std::uint32_t end = active ? in.classes : 0;
  Largest largest{below_all(), in.classes};
  float logit_sum = 0;
#pragma unroll kAtOnce
  for (std::uint32_t c = lane; c < end; c += kGroup) {
    const float logit = get(logits, c);
    if (c == lane || logit > largest.value) largest = {logit, c};
    logit_sum += logit;
  }
  largest = group_largest<kGroup>(largest);
  logit_sum = group_sum<kGroup>(logit_sum);
  float exponentials = 0;
#pragma unroll kAtOnce
  for (std::uint32_t c = lane; c < end; c += kGroup) exponentials += std::exp(get(logits, c) - largest.value);
  exponentials = group_sum<kGroup>(exponentials);
  SampleLoss mine{0, 0};
  if (!active) {
    if (gradient == nullptr || sample >= in.batch) return mine;
#pragma unroll kAtOnce
    for (std::uint32_t c = lane; c < in.classes; c += kGroup) put(gradient, c, 0.0F);
    return mine;
  }
  const auto classes = static_cast<float>(in.classes);
  const float log_sum = largest.value + std::log(exponentials);
  if (lane == 0) {
    const float wanted = target_logit(target, get(logits, target.label), get(logits, target.other));
    mine.loss = cross_entropy(log_sum, wanted, logit_sum, classes, in.smoothing);
    mine.correct = largest.index == answer_of(target) ? 1 : 0;
  }
#pragma unroll kAtOnce
  for (std::uint32_t c = lane; gradient != nullptr && c < in.classes; c += kGroup) {
    const float slope = cross_entropy_gradient(get(logits, c), log_sum, share_of(target, c), classes, in.smoothing);
    put(gradient, c, slope * in.gradient_scale);
  }
  return mine;
}

}  // namespace ddp::cuda
