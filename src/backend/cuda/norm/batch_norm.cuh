// What a batch normalisation does to a channel, and the statistics that it keeps of one, for kernels that normalise what
// they read or take the statistics of what they write.
//
//   const Line line = normalizer.line(channel);
//   y = normalizer.bounds.clamp(x * line.scale + line.shift);
#pragma once

#include <cstdint>

#include "backend/cuda/code/activate.cuh"
#include "backend/cuda/code/rows.cuh"

namespace ddp::cuda {

// y = x * scale + shift
struct Line {
  float scale;
  float shift;
};

// The normalisation as a line for each channel, and the bounds of the activation that follows.
struct Normalizer {
  const float* means;  // [2][channels]: means, then variances or 1 / sqrt(variance + epsilon)
  const float* weight;
  const float* bias;
  const float* input_bias;  // null: none, or it cancels out
  std::uint32_t channels;
  bool variances;
  float epsilon;
  Bounds bounds;

  __device__ Line line(std::uint32_t channel) const {
    const float mean = means[channel] - (input_bias == nullptr ? 0.0F : input_bias[channel]);
    const float spread = means[channels + channel];
    const float scale = weight[channel] * (variances ? 1.0F / std::sqrt(spread + epsilon) : spread);
    return {scale, bias[channel] - mean * scale};
  }
};
// Normalizer with the batch's own statistics, as saved by forward.
inline Normalizer normalizer_of(const BatchNormSpec& spec, const float* means, const float* weight, const float* bias) {
  return {means,
          weight,
          bias,
          nullptr,
          static_cast<std::uint32_t>(spec.shape.channels),
          false,
          spec.epsilon,
          bounds_of(spec.activation)};
}

// The lines of a block's channels in shared memory, to save registers and instructions.
template <unsigned kWidth, unsigned kColumns = kMostColumns>
struct BlockLines {
  alignas(16) float scale[kColumns * kWidth];
  alignas(16) float shift[kColumns * kWidth];

  // Called by all threads of the block, followed by a barrier before the first use. `channel`: the first one of the thread's
  // column.
  __device__ void fill(const Normalizer& normalizer, std::uint32_t channel, std::uint32_t channels) {
    with_channel_of_thread(channel, kWidth, channels, [&](std::uint32_t mine) {
      const Line line = normalizer.line(mine);
      scale[thread_of_block()] = line.scale;
      shift[thread_of_block()] = line.shift;
    });
  }
  // Line of channel j of the thread's column.
  __device__ Line line(unsigned j) const { return {scale[threadIdx.x * kWidth + j], shift[threadIdx.x * kWidth + j]}; }
};

// The gradient of a normalisation's input as slope_g * g + slope_x * x + shift, with g that before the activation.
struct GradientLine {
  float slope_g;
  float slope_x;
  float shift;
};
struct NormalizerGradient {
  const float* means;  // [2][channels]: means, then 1 / sqrt(variance + epsilon)
  const float* weight;
  const float* weight_gradient;
  const float* bias_gradient;
  std::uint32_t channels;
  float share;  // 1 / number of rows

  __device__ GradientLine line(std::uint32_t channel) const {
    const float spread = means[channels + channel];
    const float slope_g = weight[channel] * spread;
    const float slope_x = -slope_g * spread * (weight_gradient[channel] * share);
    return {slope_g, slope_x, -slope_g * (bias_gradient[channel] * share) - slope_x * means[channel]};
  }
};

// The statistics of a batch, and what becomes of them.
struct Statistics {
  float* partial;           // [chunks][2][channels], means, then sums of squared deviations
  float* means;             // [2][channels]: means, then 1 / sqrt(variance + epsilon)
  float* running;           // [2][channels]
  const float* input_bias;  // null: none
  std::uint32_t channels;
  float epsilon, momentum;

  __device__ void put(std::uint32_t channel, const Moments& all) const {
    const float variance = all.squares / all.count;
    means[channel] = all.mean;
    means[channels + channel] = 1.0F / std::sqrt(variance + epsilon);
    const float unbiased = all.count > 1.0F ? all.squares / (all.count - 1.0F) : variance;
    const float mean = input_bias == nullptr ? all.mean : all.mean + input_bias[channel];
    running[channel] += momentum * (mean - running[channel]);
    running[channels + channel] += momentum * (unbiased - running[channels + channel]);
  }
};

// Sums over the moments of chunks for each_channel(): plain ones, of the differences to the mean of the first chunk, since
// merging moments takes divisions one after the other. What cancels is at most as many times the variance as there are
// chunks, if the first one is far from all others.
struct MomentSums {
  float count;
  float sum;
  float squares;

  static constexpr bool kShifted = true;
  static __device__ MomentSums of(std::uint32_t rows, float shift, float mean, float squares) {
    const auto count = static_cast<float>(rows);
    const float apart = mean - shift;
    return {count, count * apart, squares + count * apart * apart};
  }
  __device__ Moments moments(float shift) const { return shifted_moments(count, shift, sum, squares); }
};
__device__ inline MomentSums merged(const MomentSums& a, const MomentSums& b) {
  return {a.count + b.count, a.sum + b.sum, a.squares + b.squares};
}
// To the statistics, in the last block of a group.
template <unsigned kWidth, class Whole, class Mapped>
__device__ inline void merge_chunks(const Whole& whole, const Mapped& tiling, const Statistics& s,
                                    MomentSums (&tree)[kTogether<kWidth>][kThreads]) {
  each_channel<kWidth>(whole, tiling, s.partial, tree,
                       [&](std::uint32_t c, const MomentSums& all) { s.put(c, all.moments(__ldcg(s.partial + c))); });
}

// Merges the sums of a block's threads, of the differences to `shift` and of their squares, to the moments of its chunk, and
// in the last block of a group of channels those of the chunks to the statistics. All threads of the block call it; those of a
// column have used the same shift, so that their sums can simply be added.
template <unsigned kWidth, class Mapped>
__device__ inline void put_moments(const Rows& rows, const Mapped& tiling, const Statistics& s,
                                   const float (&shift)[kWidth], const Sums (&sums)[kWidth],
                                   Sums (&tree)[kWidth][kThreads], MomentSums (&chunks)[kTogether<kWidth>][kThreads],
                                   std::uint32_t* tickets) {
  __shared__ float shifts[kMostColumns * kWidth];
  const unsigned thread = thread_of_block();
  for (unsigned j = 0; j < kWidth; ++j) tree[j][thread] = sums[j];
  if (threadIdx.y == 0) put_some(shifts, threadIdx.x * kWidth, shift);
  merge_lines(tree, added);
  with_channel_of_thread(tiling.channel(kWidth), kWidth, rows.channels, [&](std::uint32_t channel) {
    const auto count = static_cast<float>(tiling.rows_in(rows, tiling.chunk()));
    const Sums sum = tree[thread % kWidth][thread / kWidth];
    const Moments moments = shifted_moments(count, shifts[thread], sum.first, sum.second);
    float* means = s.partial + static_cast<std::size_t>(tiling.chunk()) * 2 * rows.channels + channel;
    means[0] = moments.mean;
    means[rows.channels] = moments.squares;
  });
  if (!is_last_block(tickets + tiling.group(), tiling.chunks())) return;
  merge_chunks<kWidth>(rows, tiling, s, chunks);
}

}  // namespace ddp::cuda
