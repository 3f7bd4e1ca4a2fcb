// The mapping of a depthwise convolution to threads: nhwc, windows of 3x3 or 5x5.
//
// Note [Strips and columns]
// A thread processes kWidth contiguous channels of a strip: some adjacent elements of a row of the tensor that the loop
// iterates over. It reads the rows covered by the strip's windows once and uses each element for all windows of the
// strip that contain it. The threads of a block along x are columns of channels, those along y take the strips of the
// block's chunk in turn. The numbers of columns, lines and chunks depend only on the shape.
#pragma once

#include <type_traits>

#include "backend/cuda/conv_problem.h"
#include "backend/cuda/vector.cuh"

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

// See Note [Strips and columns].
struct StripTiling {
  unsigned columns, lines, groups, chunks;
  unsigned strips, strips_per_chunk;

  // At most `most_blocks` blocks, with at least `least` strips per thread.
  StripTiling(int channels, unsigned width, unsigned strip_count, unsigned least, unsigned most_blocks)
      : strips(strip_count) {
    const unsigned vectors = static_cast<unsigned>(channels) / width;
    groups = (vectors + kMostStripColumns - 1) / kMostStripColumns;
    columns = (vectors + groups - 1) / groups;
    lines = kThreads / columns;
    const unsigned most = most_blocks / groups > 0 ? most_blocks / groups : 1;
    chunks = strips / (lines * least);
    chunks = chunks < 1 ? 1 : chunks < most ? chunks : most;
    strips_per_chunk = (strips + chunks - 1) / chunks;
  }

  dim3 blocks() const { return {groups * chunks}; }
  dim3 threads() const { return {columns, lines}; }

  // For the calling block: its chunk and first column, and the ends of the strips.
  __device__ unsigned chunk() const { return blockIdx.x / groups; }
  __device__ unsigned first_column() const { return blockIdx.x % groups * columns; }
  __device__ unsigned end_strip() const {
    const unsigned end = (chunk() + 1) * strips_per_chunk;
    return end < strips ? end : strips;
  }

  // Calls use(sample, row, position in the row) for each strip of the thread.
  template <class Use>
  __device__ void each_strip(unsigned strips_per_row, unsigned rows, Use use) const {
    const unsigned end = end_strip();
    for (unsigned strip = chunk() * strips_per_chunk + threadIdx.y; strip < end; strip += lines) {
      const unsigned row = strip / strips_per_row;
      use(static_cast<int>(row / rows), static_cast<int>(row % rows), static_cast<int>(strip % strips_per_row));
    }
  }
};

// kWidth channels of an element of a row; zero outside of it.
template <unsigned kWidth, class T>
__device__ inline Pack<T, kWidth> get_column(const T* row, int column, int width, int channels) {
  if (static_cast<unsigned>(column) >= static_cast<unsigned>(width)) return {};
  return get_pack<kWidth>(row, static_cast<std::size_t>(column) * static_cast<unsigned>(channels));
}

// The index of the thread's first channel in a row of an activation.
template <class T>
__device__ inline T* row_of(T* activation, int sample, int row, int height, int width, int channels, unsigned channel) {
  const std::size_t rows =
      static_cast<std::size_t>(sample) * static_cast<unsigned>(height) + static_cast<unsigned>(row);
  return activation + rows * static_cast<unsigned>(width) * static_cast<unsigned>(channels) + channel;
}

// Calls f with a value of the element's type, and the window's size and stride as types.
template <class F>
void with_depthwise(const ConvProblem& problem, F f) {
  const auto with_stride = [&](auto zero, auto kernel) {
    if (problem.spec.window.stride.vertical == 1) {
      f(zero, kernel, std::integral_constant<int, 1>{});
    } else {
      f(zero, kernel, std::integral_constant<int, 2>{});
    }
  };
  with_element(element_of(problem.precision), [&](auto zero) {
    if (problem.spec.window.height == 3) {
      with_stride(zero, std::integral_constant<int, 3>{});
    } else {
      with_stride(zero, std::integral_constant<int, 5>{});
    }
  });
}

}  // namespace ddp::cuda
