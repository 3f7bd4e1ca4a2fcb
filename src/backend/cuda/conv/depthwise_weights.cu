// The gradient of a depthwise convolution's weights: sums over all positions in a fixed order. A thread adds its strips
// (Note [Strips and columns] of depthwise.cuh), a block its lines, a second kernel the chunks.
#include "backend/cuda/conv/conv.h"
#include "backend/cuda/conv/depthwise.cuh"
#include "backend/cuda/vendor/conv_problem.h"

namespace ddp::cuda {
namespace {

constexpr unsigned kLeastStrips = 8;
constexpr int kStrip = 4;  // results

// Channels per thread: limited by the registers for a sum per tap.
template <int kKernel>
inline constexpr unsigned kChannels = kKernel == 3 ? 4 : 2;

template <class T, int kKernel, int kStride>
__global__ void __launch_bounds__(kThreads, 2)
    weights_kernel(const Depthwise d, const StripTiling tiling, const T* x, const T* dy, float* partial) {
  constexpr unsigned kWidth = kChannels<kKernel>;
  constexpr int kInputs = (kStrip - 1) * kStride + kKernel;
  const unsigned channel = (tiling.first_column() + threadIdx.x) * kWidth;
  const bool inside = channel < static_cast<unsigned>(d.channels);
  const unsigned strips_per_row = static_cast<unsigned>((d.out_width + kStrip - 1) / kStrip);
  float sums[kKernel][kKernel][kWidth] = {};
  tiling.each_strip(strips_per_row, static_cast<unsigned>(d.out_height), [&](int n, int out_row, int strip) {
    if (!inside) return;
    const int begin = strip * kStrip;
    const T* results = row_of(dy, n, out_row, d.out_height, d.out_width, d.channels, channel);
    float gradients[kStrip][kWidth];
    for (int o = 0; o < kStrip; ++o) {
      unpack(get_column<kWidth>(results, begin + o, d.out_width, d.channels), gradients[o]);
    }
#pragma unroll
    for (int r = 0; r < kKernel; ++r) {
      const int row = out_row * kStride + r - d.pad_top;
      if (row < 0 || row >= d.height) continue;
      const T* from = row_of(x, n, row, d.height, d.width, d.channels, channel);
      Pack<T, kWidth> inputs[kInputs];
      get_columns(from, begin * kStride - d.pad_left, d.width, d.channels, inputs);
#pragma unroll
      for (int j = 0; j < kInputs; ++j) {
        float values[kWidth];
        unpack(inputs[j], values);
        for (int o = 0; o < kStrip; ++o) {
          const int s = j - o * kStride;
          if (s < 0 || s >= kKernel) continue;
          for (unsigned c = 0; c < kWidth; ++c) sums[r][s][c] += values[c] * gradients[o][c];
        }
      }
    }
  });
  __shared__ float parts[kKernel * kWidth * kThreads];
  add_lines(d, tiling, sums, parts, partial);
}

// Block of kChunkColumns x kChunkLines.
template <class T>
__global__ void __launch_bounds__(kChunkThreads)
    add_chunks_kernel(const float* partial, unsigned chunks, unsigned count, T* sums) {
  add_chunks(partial, chunks, count, [&](unsigned i, float sum) { put(sums, i, sum); });
}

template <int kKernel>
StripTiling tiling_of(const Depthwise& d) {
  const auto strips_per_row = static_cast<unsigned>((d.out_width + kStrip - 1) / kStrip);
  const unsigned strips = static_cast<unsigned>(d.batch) * static_cast<unsigned>(d.out_height) * strips_per_row;
  return {d.channels, kChannels<kKernel>, strips, kLeastStrips, kMostSummingBlocks};
}

}  // namespace

std::size_t depthwise_workspace_bytes(const ConvProblem& problem) {
  if (problem.direction != ConvDirection::weights) return 0;
  const Depthwise d = depthwise_of(problem.spec);
  const StripTiling tiling = problem.spec.window.height == 3 ? tiling_of<3>(d) : tiling_of<5>(d);
  return static_cast<std::size_t>(problem.spec.weights()) * tiling.chunks() * sizeof(float);
}

void depthwise_weights(cudaStream_t stream, const ConvProblem& problem, const ConvPointers& p, float* partial) {
  const Depthwise d = depthwise_of(problem.spec);
  const auto count = static_cast<unsigned>(problem.spec.weights());
  with_depthwise(element_of(problem.precision), problem.spec, [&](auto zero, auto kernel, auto stride) {
    using T = decltype(zero);
    constexpr int kKernel = decltype(kernel)::value;
    const StripTiling tiling = tiling_of<kKernel>(d);
    launch(stream, tiling.blocks(), tiling.threads(), weights_kernel<T, kKernel, decltype(stride)::value>, d, tiling,
           as<T>(p.x), as<T>(p.y), partial);
    launch(stream, chunk_blocks(count), dim3(kChunkColumns, kChunkLines), add_chunks_kernel<T>, partial,
           tiling.chunks(), count, as<T>(const_cast<void*>(p.w)));
  });
}

}  // namespace ddp::cuda
