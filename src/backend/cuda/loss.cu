// Softmax cross-entropy: computes loss, gradient and number of correct predictions from logits, in one block, so that
// the loss is summed in a fixed order without a second kernel. It is a small part of a step for up to some thousands of
// classes.
#include "backend/arithmetic.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace ddp::cuda {
namespace {

constexpr unsigned kBlock = 1024;
constexpr unsigned kWholeWarp = 0xFFFFFFFFU;

struct Loss {
  const std::int32_t* labels;
  const std::int32_t* other_labels;
  const float* label_weights;
  std::uint32_t batch, active, classes;
  float smoothing, gradient_scale;
  double* loss_sum;
  double* correct;
};

// `kGroup` neighbouring threads share a sample; all threads of a warp call these together.
template <unsigned kGroup>
__device__ float group_sum(float value) {
  for (unsigned step = kGroup / 2; step > 0; step /= 2) value += __shfl_xor_sync(kWholeWarp, value, step);
  return value;
}

struct Largest {
  float value;
  std::uint32_t index;
};

// The first of equal maxima, as on the CPU.
template <unsigned kGroup>
__device__ Largest group_largest(Largest mine) {
  for (unsigned step = kGroup / 2; step > 0; step /= 2) {
    const Largest other{__shfl_xor_sync(kWholeWarp, mine.value, step), __shfl_xor_sync(kWholeWarp, mine.index, step)};
    if (other.value > mine.value || (other.value == mine.value && other.index < mine.index)) mine = other;
  }
  return mine;
}

// Binary tree over the block; thread 0 has the result.
__device__ double block_sum(double* tree, double value) {
  tree[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = kBlock / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) tree[threadIdx.x] += tree[threadIdx.x + half];
    __syncthreads();
  }
  const double sum = tree[0];
  __syncthreads();
  return sum;
}

template <unsigned kGroup, class T>
__global__ void __launch_bounds__(kBlock) softmax_cross_entropy_kernel(const Loss in, const T* logits, T* gradient) {
  __shared__ double tree[kBlock];
  const unsigned lane = threadIdx.x % kGroup;
  const auto classes = static_cast<float>(in.classes);
  double loss = 0;
  double correct = 0;
  // All threads run the same number of iterations, because those of a warp exchange values.
  for (std::uint32_t first = 0; first < in.batch; first += kBlock / kGroup) {
    const std::uint32_t sample = first + threadIdx.x / kGroup;
    const bool active = sample < in.active;
    const std::size_t begin = static_cast<std::size_t>(sample) * in.classes;
    const std::uint32_t end = active ? in.classes : 0;
    Largest largest{below_all(), in.classes};
    float logit_sum = 0;
    for (std::uint32_t c = lane; c < end; c += kGroup) {
      const float logit = get(logits, begin + c);
      if (c == lane || logit > largest.value) largest = {logit, c};
      logit_sum += logit;
    }
    largest = group_largest<kGroup>(largest);
    logit_sum = group_sum<kGroup>(logit_sum);
    float exponentials = 0;
    for (std::uint32_t c = lane; c < end; c += kGroup) {
      exponentials += std::exp(get(logits, begin + c) - largest.value);
    }
    exponentials = group_sum<kGroup>(exponentials);
    if (active) {
      const TargetLabel target = target_label(in.labels, in.other_labels, in.label_weights, sample);
      const float log_sum = largest.value + std::log(exponentials);
      if (lane == 0) {
        const float wanted = target_logit(target, get(logits, begin + target.label), get(logits, begin + target.other));
        loss += cross_entropy(log_sum, wanted, logit_sum, classes, in.smoothing);
        correct += largest.index == answer_of(target) ? 1 : 0;
      }
      for (std::uint32_t c = lane; gradient != nullptr && c < in.classes; c += kGroup) {
        const float share = share_of(target, c);
        const float slope = cross_entropy_gradient(get(logits, begin + c), log_sum, share, classes, in.smoothing);
        put(gradient, begin + c, slope * in.gradient_scale);
      }
    } else if (gradient != nullptr && sample < in.batch) {
      for (std::uint32_t c = lane; c < in.classes; c += kGroup) put(gradient, begin + c, 0.0F);
    }
  }
  loss = block_sum(tree, loss);
  correct = block_sum(tree, correct);
  if (threadIdx.x == 0) {
    *in.loss_sum = loss;
    *in.correct += correct;
  }
}

}  // namespace

void softmax_cross_entropy(cudaStream_t stream, Element element, const LossSpec& spec, const LossArguments& arguments) {
  const Loss in{arguments.labels,
                arguments.other_labels,
                arguments.label_weights,
                static_cast<std::uint32_t>(spec.batch),
                static_cast<std::uint32_t>(arguments.active),
                static_cast<std::uint32_t>(spec.classes),
                spec.label_smoothing,
                arguments.gradient_scale,
                arguments.loss_sum,
                arguments.correct};
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    const T* logits = as<T>(arguments.logits.data());
    T* gradient = as<T>(arguments.gradient.data());
    // With few classes, 8 samples share a warp, most of which would otherwise be idle.
    if (spec.classes <= 32) {
      launch(stream, 1, kBlock, softmax_cross_entropy_kernel<4, T>, in, logits, gradient);
    } else {
      launch(stream, 1, kBlock, softmax_cross_entropy_kernel<32, T>, in, logits, gradient);
    }
  });
}

}  // namespace ddp::cuda
