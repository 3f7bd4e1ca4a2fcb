// A depthwise convolution between two batch normalisations, forward: it normalises what it reads, and takes the statistics
// of what it writes. See Note [Strips and columns] of depthwise.cuh.
#include "backend/cuda/conv/conv.h"
#include "backend/cuda/conv/depthwise.cuh"
#include "backend/cuda/joined/joined.h"
#include "backend/cuda/joined/norm_depthwise.h"
#include "backend/cuda/norm/batch_norm.cuh"
#include "backend/cuda/norm/norm.h"

namespace ddp::cuda {
namespace {

constexpr unsigned kWidth = 4;  // channels of a thread
constexpr unsigned kLeastStrips = 4;

// Results of a strip: as many as registers hold.
template <int kKernel, int kStride>
inline constexpr int kStrip = kKernel == 5 && kStride == 2 ? 2 : 4;

__device__ std::uint32_t tickets[kMostTickets];  // one for each group of columns

struct ResultTiling : StripTiling {
  unsigned strips_per_row;
  unsigned results;  // of a strip

  ResultTiling(const Depthwise& d, unsigned per_row, unsigned per_strip)
      : StripTiling(d.channels, kWidth, static_cast<unsigned>(d.batch) * static_cast<unsigned>(d.out_height) * per_row,
                    kLeastStrips, kMostSummingBlocks),
        strips_per_row(per_row),
        results(per_strip) {}

  // The results of a chunk, for each_channel().
  __device__ std::uint32_t rows_in(const Depthwise& d, std::uint32_t chunk) const {
    return results_before(d, begin_of(chunk + 1)) - results_before(d, begin_of(chunk));
  }

 private:
  __device__ std::uint32_t results_before(const Depthwise& d, unsigned strip) const {
    const auto width = static_cast<unsigned>(d.out_width);
    const unsigned in_row = strip % strips_per_row * results;
    return strip / strips_per_row * width + (in_row < width ? in_row : width);
  }
};

ResultTiling tiling_of(const Depthwise& d, int results) {
  return {d, static_cast<unsigned>((d.out_width + results - 1) / results), static_cast<unsigned>(results)};
}

template <class T>
struct Tensors {
  const T* x;
  const float* weights;  // [channels][taps]
  T* y;
};

// The results of a strip before the second normalisation, for the channels from `channel` on.
template <class T, int kKernel, int kStride>
__device__ inline void slide(const Depthwise& d, const T* x, const Line (&lines)[kWidth], const Bounds& bounds,
                             const Pack<float, kWidth> (&taps)[kKernel * kKernel][kMostStripColumns], unsigned channel,
                             int n, int out_row, int begin, float (&sums)[kStrip<kKernel, kStride>][kWidth]) {
  constexpr int kResults = kStrip<kKernel, kStride>;
  constexpr int kInputs = (kResults - 1) * kStride + kKernel;
  const int first = begin * kStride - d.pad_left;
#pragma unroll 1
  for (int r = 0; r < kKernel; ++r) {
    const int row = out_row * kStride + r - d.pad_top;
    if (row < 0 || row >= d.height) continue;
    const T* from = row_of(x, n, row, d.height, d.width, d.channels, channel);
    Pack<T, kWidth> inputs[kInputs];
    get_columns(from, first, d.width, d.channels, inputs);
    float values[kInputs][kWidth];
    for (int j = 0; j < kInputs; ++j) {
      unpack(inputs[j], values[j]);
      // Padding is zero after the normalisation.
      const bool inside = static_cast<unsigned>(first + j) < static_cast<unsigned>(d.width);
      for (unsigned c = 0; c < kWidth; ++c) {
        values[j][c] = inside ? bounds.clamp(values[j][c] * lines[c].scale + lines[c].shift) : 0.0F;
      }
    }
    for (int s = 0; s < kKernel; ++s) {
      const Pack<float, kWidth> tap = taps[r * kKernel + s][threadIdx.x];
      for (int o = 0; o < kResults; ++o) {
        for (unsigned c = 0; c < kWidth; ++c) sums[o][c] += values[o * kStride + s][c] * tap.values[c];
      }
    }
  }
}

// Sums over the values that a thread has seen, relative to the first of them.
struct ShiftedSums {
  float shift, sum, squares;

  __device__ void add(float value) {
    const float apart = value - shift;
    sum += apart;
    squares += apart * apart;
  }
};

// Merges the sums of a block's threads, over `count` values each, to the moments of its chunk, and in the last block of a
// group those of the chunks to the statistics. All threads of the block call it.
__device__ inline void put_statistics(const Depthwise& d, const ResultTiling& tiling, const Statistics& s,
                                      const ShiftedSums (&sums)[kWidth], unsigned count) {
  __shared__ Moments tree[kWidth][kThreads];
  __shared__ MomentSums chunks[kWidth][kThreads];
  for (unsigned c = 0; c < kWidth; ++c) {
    tree[c][thread_of_block()] =
        shifted_moments(static_cast<float>(count), sums[c].shift, sums[c].sum, sums[c].squares);
  }
  merge_lines(tree, [](const Moments& a, const Moments& b) { return merged(a, b); });
  const unsigned channel = (tiling.first_column() + threadIdx.x) * kWidth;
  if (threadIdx.y == 0 && channel < s.channels) {
    float* means = s.partial + static_cast<std::size_t>(tiling.chunk()) * 2 * s.channels + channel;
    for (unsigned c = 0; c < kWidth; ++c) {
      means[c] = tree[c][threadIdx.x].mean;
      means[s.channels + c] = tree[c][threadIdx.x].squares;
    }
  }
  if (!is_last_block(tickets + tiling.group(), tiling.chunks())) return;
  merge_chunks<kWidth>(d, tiling, s, chunks);
}

// In training the results are written, and their statistics taken; in evaluation they are normalised.
template <class T, int kKernel, int kStride, bool kTraining>
__global__ void __launch_bounds__(kThreads, 2)
    norm_depthwise_kernel(const Depthwise d, const ResultTiling tiling, const Tensors<T> t, const Normalizer before,
                          const Normalizer after, const Statistics statistics) {
  constexpr int kResults = kStrip<kKernel, kStride>;
  __shared__ Pack<float, kWidth> taps[kKernel * kKernel][kMostStripColumns];
  const unsigned channel = (tiling.first_column() + threadIdx.x) * kWidth;
  const bool inside = channel < before.channels;
  using Lines = BlockLines<kWidth, kMostStripColumns>;
  __shared__ Lines lines_before;
  __shared__ Lines lines_after;
  lines_before.fill(before, channel, before.channels);
  if constexpr (!kTraining) lines_after.fill(after, channel, after.channels);
  load_taps(d, tiling, t.weights, false, taps);  // ends with a barrier
  Line lines[kWidth];
  for (unsigned c = 0; c < kWidth; ++c) lines[c] = lines_before.line(c);
  ShiftedSums seen[kWidth] = {};
  unsigned count = 0;
  tiling.each_strip(tiling.strips_per_row, static_cast<unsigned>(d.out_height), [&](int n, int out_row, int strip) {
    if (!inside) return;
    const int begin = strip * kResults;
    float sums[kResults][kWidth] = {};
    slide<T, kKernel, kStride>(d, t.x, lines, before.bounds, taps, channel, n, out_row, begin, sums);
    T* to = row_of(t.y, n, out_row, d.out_height, d.out_width, d.channels, channel);
    for (int o = 0; o < kResults; ++o) {
      if (begin + o >= d.out_width) continue;
      Pack<T, kWidth> pack;
      for (unsigned c = 0; c < kWidth; ++c) {
        if constexpr (!kTraining) {
          const Line line = lines_after.line(c);
          sums[o][c] = after.bounds.clamp(sums[o][c] * line.scale + line.shift);
        }
        put(pack.values, c, sums[o][c]);
        // The statistics are those of the values as they are stored.
        const float stored = get(pack.values, c);
        if (count == 0) seen[c].shift = stored;
        seen[c].add(stored);
      }
      ++count;
      *reinterpret_cast<Pack<T, kWidth>*>(to + static_cast<std::size_t>(begin + o) * d.channels) = pack;
    }
  });
  if (kTraining) put_statistics(d, tiling, statistics, seen, count);
}

}  // namespace

std::int64_t norm_depthwise_forward_sums(const ConvSpec& spec) {
  std::int64_t floats = 0;
  with_window(spec, [&](auto kernel, auto stride) {
    const ResultTiling tiling = tiling_of(depthwise_of(spec), kStrip<decltype(kernel)::value, decltype(stride)::value>);
    floats = std::int64_t{tiling.chunks()} * 2 * spec.output_channels;
  });
  return floats;
}

void norm_depthwise(cudaStream_t stream, Element element, const NormDepthwiseSpec& spec,
                    const NormDepthwiseForward& a) {
  Depthwise d = depthwise_of(spec.conv);
  d.batch = static_cast<int>(a.samples);
  const bool training = a.before.means != nullptr;
  const auto normalizer = [&](const BatchNormSpec& norm, const NormPointers& p) {
    Normalizer result = normalizer_of(norm, training ? p.means : p.statistics, p.weight, p.bias);
    result.variances = !training;
    return result;
  };
  const Normalizer before = normalizer(spec.before, a.before);
  const Normalizer after = normalizer(spec.after, a.after);
  const Statistics statistics{a.partial_sums, a.after.means,      a.after.statistics, nullptr,
                              after.channels, spec.after.epsilon, spec.after.momentum};
  with_depthwise(element, spec.conv, [&](auto zero, auto window, auto stride) {
    using T = decltype(zero);
    constexpr int kKernel = decltype(window)::value;
    constexpr int kStride = decltype(stride)::value;
    const ResultTiling tiling = tiling_of(d, kStrip<kKernel, kStride>);
    const Tensors<T> tensors{as<T>(a.x), a.weights, as<T>(a.y)};
    const auto kernel =
        training ? norm_depthwise_kernel<T, kKernel, kStride, true> : norm_depthwise_kernel<T, kKernel, kStride, false>;
    launch(stream, tiling.blocks(), tiling.threads(), kernel, d, tiling, tensors, before, after, statistics);
  });
}

}  // namespace ddp::cuda
