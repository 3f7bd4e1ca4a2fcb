// Depthwise convolutions and the gradients of their inputs; see Note [Strips and columns] of depthwise.cuh.
#include "backend/cuda/conv/conv.h"
#include "backend/cuda/conv/depthwise.cuh"
#include "backend/cuda/vendor/conv_problem.h"

namespace ddp::cuda {
namespace {

// Enough blocks to fill a GPU several times; each thread has enough strips to amortise reading the weights.
constexpr unsigned kLeastStrips = 4;
constexpr unsigned kMostBlocksOfStrips = 1U << 20U;

// Results of a strip: as many as registers hold.
template <int kKernel, int kStride>
inline constexpr int kStrip = kKernel == 5 && kStride == 2 ? 2 : 4;
constexpr int kGradientStrip = 4;

// Writes a result, or adds it to the one that is there.
template <unsigned kWidth, class T>
__device__ inline void put_result(T* to, std::size_t i, bool add, const float (&sums)[kWidth]) {
  if (!add) return put_some(to, i, sums);
  float values[kWidth];
  get_some(to, i, values);
  for (unsigned c = 0; c < kWidth; ++c) values[c] += sums[c];
  put_some(to, i, values);
}

// y = the windows of x times the weights, one result after the other in strips of a row. With `turned` and matching
// paddings it computes the input gradient of a convolution with stride 1.
template <class T, int kKernel, int kStride>
__global__ void __launch_bounds__(kThreads, 2) depthwise_kernel(const Depthwise d, const StripTiling tiling, const T* x,
                                                                const T* weights, bool turned, bool add, T* y) {
  constexpr unsigned kWidth = kVector<T>;
  constexpr int kResults = kStrip<kKernel, kStride>;
  constexpr int kInputs = (kResults - 1) * kStride + kKernel;
  __shared__ Pack<float, kWidth> taps[kKernel * kKernel][kMostStripColumns];
  load_taps(d, tiling, weights, turned, taps);
  const unsigned channel = (tiling.first_column() + threadIdx.x) * kWidth;
  if (channel >= static_cast<unsigned>(d.channels)) return;
  const auto strips_per_row = static_cast<unsigned>((d.out_width + kResults - 1) / kResults);
  tiling.each_strip(strips_per_row, static_cast<unsigned>(d.out_height), [&](int n, int out_row, int strip) {
    const int begin = strip * kResults;
    float sums[kResults][kWidth] = {};
#pragma unroll
    for (int r = 0; r < kKernel; ++r) {
      const int row = out_row * kStride + r - d.pad_top;
      if (row < 0 || row >= d.height) continue;
      const T* from = row_of(x, n, row, d.height, d.width, d.channels, channel);
      Pack<T, kWidth> inputs[kInputs];
      get_columns(from, begin * kStride - d.pad_left, d.width, d.channels, inputs);
      // Each element is converted once, for all windows that contain it.
#pragma unroll
      for (int j = 0; j < kInputs; ++j) {
        float values[kWidth];
        unpack(inputs[j], values);
        for (int o = 0; o < kResults; ++o) {
          const int s = j - o * kStride;
          if (s < 0 || s >= kKernel) continue;
          const Pack<float, kWidth> tap = taps[r * kKernel + s][threadIdx.x];
          for (unsigned c = 0; c < kWidth; ++c) sums[o][c] += values[c] * tap.values[c];
        }
      }
    }
    T* to = row_of(y, n, out_row, d.out_height, d.out_width, d.channels, channel);
    for (int o = 0; o < kResults; ++o) {
      if (begin + o < d.out_width) put_result(to, static_cast<std::size_t>(begin + o) * d.channels, add, sums[o]);
    }
  });
}

// dx for stride 2. A strip begins where column + padding is even: its first element uses the even taps, its second the
// odd ones, and so on.
template <class T, int kKernel>
__global__ void __launch_bounds__(kThreads, 2)
    depthwise_data_kernel(const Depthwise d, const StripTiling tiling, const T* dy, const T* weights, bool add, T* dx) {
  constexpr unsigned kWidth = kVector<T>;
  constexpr int kBefore = (kKernel - 1) / 2;
  constexpr int kInputs = kBefore + kGradientStrip / 2;
  __shared__ Pack<float, kWidth> taps[kKernel * kKernel][kMostStripColumns];
  load_taps(d, tiling, weights, false, taps);
  const unsigned channel = (tiling.first_column() + threadIdx.x) * kWidth;
  if (channel >= static_cast<unsigned>(d.channels)) return;
  const int shift = d.pad_left % 2;
  const auto strips_per_row = static_cast<unsigned>((d.width + shift + kGradientStrip - 1) / kGradientStrip);
  tiling.each_strip(strips_per_row, static_cast<unsigned>(d.height), [&](int n, int row, int strip) {
    const int begin = strip * kGradientStrip - shift;
    const int base = (begin + d.pad_left) / 2;
    float sums[kGradientStrip][kWidth] = {};
    for (int r = (row + d.pad_top) % 2; r < kKernel; r += 2) {
      const int below = row + d.pad_top - r;
      if (below < 0 || below / 2 >= d.out_height) continue;
      const T* from = row_of(dy, n, below / 2, d.out_height, d.out_width, d.channels, channel);
      Pack<T, kWidth> inputs[kInputs];
      get_columns(from, base - kBefore, d.out_width, d.channels, inputs);
      for (int s = 0; s < kKernel; ++s) {
        const Pack<float, kWidth> tap = taps[r * kKernel + s][threadIdx.x];
        for (int o = s % 2; o < kGradientStrip; o += 2) {
          float values[kWidth];
          unpack(inputs[kBefore + (o - s) / 2], values);
          for (unsigned c = 0; c < kWidth; ++c) sums[o][c] += values[c] * tap.values[c];
        }
      }
    }
    T* to = row_of(dx, n, row, d.height, d.width, d.channels, channel);
    for (int o = 0; o < kGradientStrip; ++o) {
      const int column = begin + o;
      if (column >= 0 && column < d.width) {
        put_result(to, static_cast<std::size_t>(column) * d.channels, add, sums[o]);
      }
    }
  });
}

template <class T>
StripTiling tiling_of(const Depthwise& d, int rows, int strips_per_row) {
  const auto strips =
      static_cast<unsigned>(d.batch) * static_cast<unsigned>(rows) * static_cast<unsigned>(strips_per_row);
  return {d.channels, kVector<T>, strips, kLeastStrips, kMostBlocksOfStrips};
}

template <class T, int kKernel, int kStride>
void slide(cudaStream_t stream, const Depthwise& d, const void* x, const void* weights, bool turned, bool add,
           const void* y) {
  constexpr int kResults = kStrip<kKernel, kStride>;
  const StripTiling tiling = tiling_of<T>(d, d.out_height, (d.out_width + kResults - 1) / kResults);
  launch(stream, tiling.blocks(), tiling.threads(), depthwise_kernel<T, kKernel, kStride>, d, tiling, as<T>(x),
         as<T>(weights), turned, add, as<T>(const_cast<void*>(y)));
}

}  // namespace

bool depthwise_supports(Element element, const ConvSpec& s) {
  const std::int64_t channels = s.input.channels;
  return s.groups == channels && s.output_channels == channels && s.window.height == s.window.width &&
         (s.window.height == 3 || s.window.height == 5) && s.window.plain() && s.window.stride.vertical <= 2 &&
         channels % static_cast<std::int64_t>(kAlignment / bytes_of(element)) == 0;
}

void depthwise(cudaStream_t stream, const ConvProblem& problem, const ConvPointers& p, void* workspace) {
  if (problem.direction == ConvDirection::weights) {
    depthwise_weights(stream, problem, p, static_cast<float*>(workspace));
    return;
  }
  Depthwise d = depthwise_of(problem.spec);
  with_depthwise(element_of(problem.precision), problem.spec, [&](auto zero, auto kernel, auto stride) {
    using T = decltype(zero);
    constexpr int kKernel = decltype(kernel)::value;
    constexpr int kStride = decltype(stride)::value;
    if (problem.direction == ConvDirection::forward) {
      slide<T, kKernel, kStride>(stream, d, p.x, p.w, false, false, p.y);
    } else if constexpr (kStride == 1) {
      const Depthwise back{d.batch,
                           d.out_height,
                           d.out_width,
                           d.height,
                           d.width,
                           d.channels,
                           kKernel - 1 - d.pad_top,
                           kKernel - 1 - d.pad_left};
      slide<T, kKernel, kStride>(stream, back, p.y, p.w, true, problem.add, p.x);
    } else {
      const int strips_per_row = (d.width + d.pad_left % 2 + kGradientStrip - 1) / kGradientStrip;
      const StripTiling tiling = tiling_of<T>(d, d.height, strips_per_row);
      launch(stream, tiling.blocks(), tiling.threads(), depthwise_data_kernel<T, kKernel>, d, tiling, as<T>(p.y),
             as<T>(p.w), problem.add, as<T>(const_cast<void*>(p.x)));
    }
  });
}

}  // namespace ddp::cuda
