// A depthwise convolution between two batch normalisations, backward: one pass over the input computes its gradient, the
// gradient of the weights, and the sums for the first normalisation.
//
// Note [One pass]
// Each product of a gradient of the convolution's result with a weight contributes to the gradient of the input element under
// that weight, and the product with that element to the gradient of the weight. A thread therefore processes strips of
// the input (Note [Strips and columns] of depthwise.cuh), with a sum for each weight of its channels. The gradients of the
// result are not stored: they follow from dy and the result by a line for each channel (batch_norm.cuh).
#include "backend/cuda/conv/conv.h"
#include "backend/cuda/conv/depthwise.cuh"
#include "backend/cuda/joined/joined.h"
#include "backend/cuda/joined/norm_depthwise.h"
#include "backend/cuda/norm/batch_norm.cuh"

namespace ddp::cuda {
namespace {

constexpr unsigned kWidth = 2;  // channels of a thread: limited by the registers for their sums
constexpr unsigned kLeastStrips = 8;

// Elements of a strip of the input: as many as registers hold.
template <int kKernel>
inline constexpr int kStrip = kKernel == 3 ? 4 : 2;

// The sums of a channel in `partial`: [kKernel + 1][kKernel], those for the weights, then two for the normalisation.
template <int kKernel>
inline constexpr int kSums = (kKernel + 1) * kKernel;

template <class T>
struct Tensors {
  const T* x;
  const T* convolved;
  const T* dy;
  T* dx;
  const float* weights;  // [channels][taps]
  float* partial;        // [chunks][channels][kSums]
};

// How the gradient of the convolution's result follows from dy and the result.
struct ResultGradient {
  Normalizer normalizer;
  NormalizerGradient gradient;
};

// The coefficients of a block's columns, in shared memory to save registers.
struct Coefficients {
  Line line[kMostStripColumns][kWidth];
  GradientLine gradient[kMostStripColumns][kWidth];
  Line before[kMostStripColumns][kWidth];
  float before_mean[kMostStripColumns][kWidth];

  // Called by all threads of the block, followed by a barrier before the first use.
  __device__ void fill(const Normalizer& normalizer, const ResultGradient& after, unsigned channel) {
    with_channel_of_thread(channel, kWidth, normalizer.channels, [&](std::uint32_t mine) {
      const unsigned column = thread_of_block() / kWidth;
      const unsigned c = thread_of_block() % kWidth;
      before[column][c] = normalizer.line(mine);
      before_mean[column][c] = normalizer.means[mine];
      line[column][c] = after.normalizer.line(mine);
      gradient[column][c] = after.gradient.line(mine);
    });
  }
};

// The gradients of kCount results of a row from column `first` on; zero outside of it.
template <int kCount, class T>
__device__ inline void get_gradients(const Depthwise& d, const Coefficients& coefficients, const Bounds& bounds,
                                     const T* convolved, const T* dy, int first, float (&gradients)[kCount][kWidth]) {
  Pack<T, kWidth> results[kCount];
  Pack<T, kWidth> dys[kCount];
  for (int j = 0; j < kCount; ++j) {
    results[j] = get_column<kWidth>(convolved, first + j, d.out_width, d.channels);
    dys[j] = get_column<kWidth>(dy, first + j, d.out_width, d.channels);
  }
  for (unsigned c = 0; c < kWidth; ++c) {
    const Line line = coefficients.line[threadIdx.x][c];
    const GradientLine slopes = coefficients.gradient[threadIdx.x][c];
    for (int j = 0; j < kCount; ++j) {
      const bool inside = static_cast<unsigned>(first + j) < static_cast<unsigned>(d.out_width);
      const float result = get(results[j].values, c);
      const float g = bounds.pass(result * line.scale + line.shift) ? get(dys[j].values, c) : 0.0F;
      gradients[j][c] = inside ? slopes.slope_g * g + (slopes.slope_x * result + slopes.shift) : 0.0F;
    }
  }
}

// A strip of the input: as it is, normalised, and its gradient so far.
template <class T, int kCount>
struct Strip {
  Pack<T, kWidth> x[kCount];
  float normalised[kCount][kWidth];
  float dx[kCount][kWidth];

  __device__ Strip(const Depthwise& d, const T* row, int begin, const Line (&lines)[kWidth], const Bounds& bounds) {
    get_columns(row, begin, d.width, d.channels, x);
    for (int o = 0; o < kCount; ++o) {
      const bool inside = static_cast<unsigned>(begin + o) < static_cast<unsigned>(d.width);
      for (unsigned c = 0; c < kWidth; ++c) {
        const float value = get(x[o].values, c) * lines[c].scale + lines[c].shift;
        normalised[o][c] = inside ? bounds.clamp(value) : 0.0F;
        dx[o][c] = 0.0F;
      }
    }
  }

  // Adds the products with the gradients of a row of results. The first of these is under the window's last column where
  // that lies on the strip's first element.
  template <int kKernel, int kStride, int kGradients>
  __device__ void add(const float (&gradients)[kGradients][kWidth],
                      const Pack<float, kWidth> (&taps)[kKernel * kKernel][kMostStripColumns], int r,
                      float (&sums)[kKernel + 1][kKernel][kWidth]) {
#pragma unroll
    for (int s = 0; s < kKernel; ++s) {
      const Pack<float, kWidth> tap = taps[r * kKernel + s][threadIdx.x];
      for (int o = 0; o < kCount; ++o) {
        if ((o + kKernel - 1 - s) % kStride != 0) continue;
        const int j = (o + kKernel - 1 - s) / kStride;
        for (unsigned c = 0; c < kWidth; ++c) {
          dx[o][c] += gradients[j][c] * tap.values[c];
          sums[r][s][c] += gradients[j][c] * normalised[o][c];
        }
      }
    }
  }

  // Writes the gradient before the activation, and adds it up.
  __device__ void finish(const Depthwise& d, T* row, int begin, const Bounds& bounds, const float (&means)[kWidth],
                         float (&sum)[kWidth], float (&products)[kWidth]) const {
    for (int o = 0; o < kCount; ++o) {
      if (static_cast<unsigned>(begin + o) >= static_cast<unsigned>(d.width)) continue;
      Pack<T, kWidth> pack;
      for (unsigned c = 0; c < kWidth; ++c) {
        put(pack.values, c, bounds.pass(normalised[o][c]) ? dx[o][c] : 0.0F);
        const float g = get(pack.values, c);
        sum[c] += g;
        products[c] += g * (get(x[o].values, c) - means[c]);
      }
      *reinterpret_cast<Pack<T, kWidth>*>(row + static_cast<std::size_t>(begin + o) * d.channels) = pack;
    }
  }
};

template <int kKernel, int kStride>
__host__ __device__ unsigned strips_per_row(const Depthwise& d) {
  return static_cast<unsigned>((d.width + d.pad_left % kStride + kStrip<kKernel> - 1) / kStrip<kKernel>);
}

// Blocks of a multiprocessor, whose registers hold a block's sums.
template <int kKernel, int kStride>
inline constexpr int kBlocks = kKernel == 5 && kStride == 1 ? 1 : 2;

// A strip begins where column + padding is a multiple of the stride, so that all strips have the same products.
template <class T, int kKernel, int kStride>
__global__ void __launch_bounds__(kThreads, kBlocks<kKernel, kStride>)
    norm_depthwise_gradient_kernel(const Depthwise d, const StripTiling tiling, const Tensors<T> t,
                                   const Normalizer before, const ResultGradient after) {
  constexpr int kElements = kStrip<kKernel>;
  constexpr int kGradients = (kElements + kKernel - 2) / kStride + 1;
  __shared__ Pack<float, kWidth> taps[kKernel * kKernel][kMostStripColumns];
  __shared__ Coefficients coefficients;
  const unsigned channel = (tiling.first_column() + threadIdx.x) * kWidth;
  coefficients.fill(before, after, channel);
  load_taps(d, tiling, t.weights, false, taps);  // ends with a barrier
  const bool inside = channel < before.channels;
  float sums[kKernel + 1][kKernel][kWidth] = {};
  const unsigned per_row = strips_per_row<kKernel, kStride>(d);
  tiling.each_strip(per_row, static_cast<unsigned>(d.height), [&](int n, int row, int position) {
    if (!inside) return;
    const int begin = position * kElements - d.pad_left % kStride;
    Strip<T, kElements> strip(d, row_of(t.x, n, row, d.height, d.width, d.channels, channel), begin,
                              coefficients.before[threadIdx.x], before.bounds);
#pragma unroll
    for (int r = 0; r < kKernel; ++r) {
      const int below = row + d.pad_top - r;
      if (below < 0 || below % kStride != 0 || below / kStride >= d.out_height) continue;
      const int out_row = below / kStride;
      float gradients[kGradients][kWidth];
      get_gradients(d, coefficients, after.normalizer.bounds,
                    row_of(t.convolved, n, out_row, d.out_height, d.out_width, d.channels, channel),
                    row_of(t.dy, n, out_row, d.out_height, d.out_width, d.channels, channel),
                    (begin + d.pad_left) / kStride - (kKernel - 1) / kStride, gradients);
      strip.template add<kKernel, kStride>(gradients, taps, r, sums);
    }
    strip.finish(d, row_of(t.dx, n, row, d.height, d.width, d.channels, channel), begin, before.bounds,
                 coefficients.before_mean[threadIdx.x], sums[kKernel][0], sums[kKernel][1]);
  });
  __shared__ float parts[kKernel * kWidth * kThreads];
  add_lines(d, tiling, sums, parts, t.partial);
}

struct SummedGradients {
  float* weights;      // [channels][taps]
  float* norm_weight;  // of the first normalisation
  float* norm_bias;
  const float* means;  // [2][channels]: means, then 1 / sqrt(variance + epsilon)
};

// Block of kChunkColumns x kChunkLines.
template <int kKernel>
__global__ void __launch_bounds__(kChunkThreads)
    norm_depthwise_sums_kernel(const float* partial, unsigned chunks, unsigned channels, const SummedGradients to) {
  add_chunks(partial, chunks, channels * kSums<kKernel>, [&](unsigned i, float sum) {
    const unsigned channel = i / kSums<kKernel>;
    const unsigned which = i % kSums<kKernel>;
    constexpr unsigned kTaps = kKernel * kKernel;
    if (which < kTaps) to.weights[channel * kTaps + which] = sum;
    if (which == kTaps) to.norm_bias[channel] = sum;
    if (which == kTaps + 1) to.norm_weight[channel] = sum * to.means[channels + channel];
  });
}

template <int kKernel, int kStride>
StripTiling tiling_of(const Depthwise& d) {
  const unsigned rows = static_cast<unsigned>(d.batch) * static_cast<unsigned>(d.height);
  return {d.channels, kWidth, rows * strips_per_row<kKernel, kStride>(d), kLeastStrips, kMostSummingBlocks};
}

}  // namespace

std::int64_t norm_depthwise_backward_sums(const ConvSpec& spec) {
  std::int64_t floats = 0;
  with_window(spec, [&](auto kernel, auto stride) {
    constexpr int kKernel = decltype(kernel)::value;
    const StripTiling tiling = tiling_of<kKernel, decltype(stride)::value>(depthwise_of(spec));
    floats = std::int64_t{tiling.chunks()} * spec.output_channels * kSums<kKernel>;
  });
  return floats;
}

void norm_depthwise_backward(cudaStream_t stream, Element element, const NormDepthwiseSpec& spec,
                             const NormDepthwiseBackward& a) {
  Depthwise d = depthwise_of(spec.conv);
  d.batch = static_cast<int>(a.samples);
  const auto channels = static_cast<unsigned>(d.channels);
  const Normalizer before = normalizer_of(spec.before, a.before.means, a.before.weight, a.before.bias);
  const float share = 1.0F / static_cast<float>(a.samples * d.out_height * d.out_width);
  const ResultGradient after{
      normalizer_of(spec.after, a.after.means, a.after.weight, a.after.bias),
      {a.after.means, a.after.weight, a.after_weight_gradient, a.after_bias_gradient, channels, share}};
  const SummedGradients sums{a.weights_gradient, a.before_weight_gradient, a.before_bias_gradient, a.before.means};
  with_depthwise(element, spec.conv, [&](auto zero, auto window, auto stride) {
    using T = decltype(zero);
    constexpr int kKernel = decltype(window)::value;
    constexpr int kStride = decltype(stride)::value;
    const StripTiling tiling = tiling_of<kKernel, kStride>(d);
    const Tensors<T> tensors{as<T>(a.x), as<T>(a.convolved), as<T>(a.dy), as<T>(a.dx), a.weights, a.partial_sums};
    launch(stream, tiling.blocks(), tiling.threads(), norm_depthwise_gradient_kernel<T, kKernel, kStride>, d, tiling,
           tensors, before, after);
    launch(stream, chunk_blocks(channels * kSums<kKernel>), dim3(kChunkColumns, kChunkLines),
           norm_depthwise_sums_kernel<kKernel>, a.partial_sums, tiling.chunks(), channels, sums);
  });
}

}  // namespace ddp::cuda
