// The mapping of a depthwise convolution to threads: nhwc, windows of 3x3 or 5x5.
//
// Note [Strips and columns]
// A thread processes kWidth contiguous channels of a strip: some adjacent elements of a row of the tensor that the loop
// iterates over. It reads the rows covered by the strip's windows once and uses each element for all windows of the
// strip that contain it. The threads of a block along x are columns of channels, those along y take the strips of the
// block's chunk in turn. The numbers of columns, lines and chunks depend only on the shape.
#pragma once

#include <type_traits>

#include "backend/cuda/code/rows.cuh"
#include "backend/cuda/vendor/conv_problem.h"

namespace ddp::cuda {

struct Depthwise {
  int batch, height, width, out_height, out_width, channels;
  int pad_top, pad_left;
};

inline Depthwise depthwise_of(const ConvSpec& s) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  const Shape out = s.convolved();
  return {number(s.batch),   number(s.input.height),   number(s.input.width),        number(out.height),
          number(out.width), number(s.input.channels), number(s.window.padding.top), number(s.window.padding.left)};
}

inline constexpr unsigned kMostStripColumns = 32;
// A wave: the blocks that a GPU with 132 multiprocessors runs at once, two on each.
inline constexpr unsigned kWaveOfBlocks = 264;
// Most blocks that leave sums: one wave, since their number is that of sums to be added, and a partial second one takes as long
// as a whole one.
inline constexpr unsigned kMostSummingBlocks = kWaveOfBlocks;

// See Note [Strips and columns].
struct StripTiling {
  static constexpr unsigned kFewWaves = 8;
  unsigned columns, lines, groups, chunk_count;
  unsigned strips, strips_per_chunk;

  // At most `most_blocks` blocks, with at least `least` strips per thread; complete waves, if these are few.
  StripTiling(int channels, unsigned width, unsigned strip_count, unsigned least, unsigned most_blocks)
      : strips(strip_count) {
    const unsigned vectors = static_cast<unsigned>(channels) / width;
    groups = (vectors + kMostStripColumns - 1) / kMostStripColumns;
    columns = (vectors + groups - 1) / groups;
    lines = kThreads / columns;
    const unsigned most = most_blocks / groups > 0 ? most_blocks / groups : 1;
    chunk_count = strips / (lines * least);
    const unsigned waves = chunk_count * groups / kWaveOfBlocks;
    if (waves > 0 && waves < kFewWaves) chunk_count = waves * kWaveOfBlocks / groups;
    chunk_count = chunk_count < 1 ? 1 : chunk_count < most ? chunk_count : most;
    strips_per_chunk = (strips + chunk_count - 1) / chunk_count;
  }

  dim3 blocks() const { return {groups * chunk_count}; }
  dim3 threads() const { return {columns, lines}; }
  __host__ __device__ unsigned chunks() const { return chunk_count; }
  __host__ __device__ unsigned begin_of(unsigned chunk) const {
    const unsigned begin = chunk * strips_per_chunk;
    return begin < strips ? begin : strips;
  }

  // For the calling block: its chunk, its group of columns and the first of them.
  __device__ unsigned chunk() const { return blockIdx.x / groups; }
  __device__ unsigned group() const { return blockIdx.x % groups; }
  __device__ unsigned first_column() const { return group() * columns; }

  // Calls use(sample, row, position in the row) for each strip of the thread.
  template <class Use>
  __device__ void each_strip(unsigned strips_per_row, unsigned rows, Use use) const {
    const unsigned end = begin_of(chunk() + 1);
    for (unsigned strip = begin_of(chunk()) + threadIdx.y; strip < end; strip += lines) {
      const unsigned row = strip / strips_per_row;
      use(static_cast<int>(row / rows), static_cast<int>(row % rows), static_cast<int>(strip % strips_per_row));
    }
  }
};

// kWidth channels of an element of a row; zero outside of it.
template <unsigned kWidth, class T>
__device__ inline Pack<T, kWidth> get_column(const T* row, int column, int width, int channels) {
  const bool inside = static_cast<unsigned>(column) < static_cast<unsigned>(width);
  return get_pack_if<kWidth>(inside, row, static_cast<std::size_t>(column) * static_cast<unsigned>(channels));
}

// The same of the elements from `first` on, all of which are loaded before the first is used.
template <unsigned kWidth, int kCount, class T>
__device__ inline void get_columns(const T* row, int first, int width, int channels,
                                   Pack<T, kWidth> (&columns)[kCount]) {
  for (int j = 0; j < kCount; ++j) columns[j] = get_column<kWidth>(row, first + j, width, channels);
}

// The index of the thread's first channel in a row of an activation.
template <class T>
__device__ inline T* row_of(T* activation, int sample, int row, int height, int width, int channels, unsigned channel) {
  const std::size_t rows =
      static_cast<std::size_t>(sample) * static_cast<unsigned>(height) + static_cast<unsigned>(row);
  return activation + rows * static_cast<unsigned>(width) * static_cast<unsigned>(channels) + channel;
}

// The weights [channels][taps] of the block's channels as [taps][columns], rotated by 180 degrees for the gradient,
// whose window slides over dy.
template <int kTaps, unsigned kWidth, class T>
__device__ inline void load_taps(const Depthwise& d, const StripTiling& tiling, const T* weights, bool turned,
                                 Pack<float, kWidth> (&taps)[kTaps][kMostStripColumns]) {
  const unsigned first = tiling.first_column() * kWidth;
  const unsigned left = static_cast<unsigned>(d.channels) - first;
  const unsigned channels = left < tiling.columns * kWidth ? left : tiling.columns * kWidth;
  const T* from = weights + static_cast<std::size_t>(first) * kTaps;
  for (unsigned i = threadIdx.y * tiling.columns + threadIdx.x; i < channels * kTaps;
       i += tiling.columns * tiling.lines) {
    const unsigned tap = turned ? kTaps - 1 - i % kTaps : i % kTaps;
    taps[tap][i / kTaps / kWidth].values[i / kTaps % kWidth] = get(from, i);
  }
  __syncthreads();
}

// Adds the lines of a block, some sums for each channel of a thread, one of their kRows at a time, and leaves those of the
// chunk in `partial`, [chunks][channels][kRows][kColumns]. All threads of the block call it.
template <int kRows, int kColumns, unsigned kWidth>
__device__ inline void add_lines(const Depthwise& d, const StripTiling& tiling,
                                 const float (&sums)[kRows][kColumns][kWidth],
                                 float (&parts)[kColumns * kWidth * kThreads], float* partial) {
  const unsigned thread = threadIdx.y * tiling.columns + threadIdx.x;
  const unsigned channels = tiling.columns * kWidth;  // of the block
  const unsigned first = tiling.first_column() * kWidth;
#pragma unroll
  for (unsigned r = 0; r < kRows; ++r) {
    for (unsigned s = 0; s < kColumns; ++s) {
      for (unsigned c = 0; c < kWidth; ++c) parts[s * kThreads * kWidth + thread * kWidth + c] = sums[r][s][c];
    }
    __syncthreads();
#pragma unroll 1
    for (unsigned channel = thread; channel < channels; channel += tiling.columns * tiling.lines) {
      if (first + channel >= static_cast<unsigned>(d.channels)) continue;
      float total[kColumns] = {};
#pragma unroll 1
      for (unsigned line = 0; line < tiling.lines; ++line) {
        for (unsigned s = 0; s < kColumns; ++s) total[s] += parts[s * kThreads * kWidth + line * channels + channel];
      }
      const std::size_t place = static_cast<std::size_t>(tiling.chunk()) * d.channels + first + channel;
      for (unsigned s = 0; s < kColumns; ++s) partial[(place * kRows + r) * kColumns + s] = total[s];
    }
    __syncthreads();
  }
}

// Calls f with the window's size and stride as types.
template <class F>
void with_window(const ConvSpec& spec, F f) {
  const auto with_stride = [&](auto kernel) {
    if (spec.window.stride.vertical == 1) {
      f(kernel, std::integral_constant<int, 1>{});
    } else {
      f(kernel, std::integral_constant<int, 2>{});
    }
  };
  if (spec.window.height == 3) {
    with_stride(std::integral_constant<int, 3>{});
  } else {
    with_stride(std::integral_constant<int, 5>{});
  }
}
// The same after a value of the element's type.
template <class F>
void with_depthwise(Element element, const ConvSpec& spec, F f) {
  with_element(element,
               [&](auto zero) { with_window(spec, [&](auto kernel, auto stride) { f(zero, kernel, stride); }); });
}

}  // namespace ddp::cuda
