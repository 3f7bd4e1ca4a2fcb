// The sliding window of a convolution or pooling, shared by ONNX, layers, operators and kernels.
//
//   constexpr Window2d kWindow = square(3, /*stride=*/2, /*padding=*/1);
//   const Shape out = kWindow.slide({64, 56, 56});   // {64, 28, 28}
//   const Window2d wide = {.height = 3, .width = 5, .stride = {2, 1}, .dilation = 2};
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types/shape.h"

namespace ddp {

// Rows and columns around an image.
struct Padding2d {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t bottom = 0;
  std::int64_t right = 0;

  constexpr bool any() const { return top > 0 || left > 0 || bottom > 0 || right > 0; }
  constexpr bool operator==(const Padding2d&) const = default;
};
constexpr Padding2d operator+(const Padding2d& a, const Padding2d& b) {
  return {a.top + b.top, a.left + b.left, a.bottom + b.bottom, a.right + b.right};
}
constexpr Padding2d uniform_padding(std::int64_t width) { return {width, width, width, width}; }

// One number for each direction; from a single number, the same for both.
struct Pair2d {
  std::int64_t vertical = 1;
  std::int64_t horizontal = 1;

  // NOLINTNEXTLINE(google-explicit-constructor): a stride is usually written as one number
  constexpr Pair2d(std::int64_t both) : vertical(both), horizontal(both) {}
  constexpr Pair2d(std::int64_t rows, std::int64_t columns) : vertical(rows), horizontal(columns) {}

  constexpr bool operator==(const Pair2d&) const = default;
};

struct Window2d {
  std::int64_t height = 1;
  std::int64_t width = 1;
  Pair2d stride = 1;
  Padding2d padding = {};
  Pair2d dilation = 1;  // the distance between neighbouring taps

  constexpr std::int64_t elements() const { return height * width; }
  // Whether all taps are neighbours and both strides are equal, as most kernels need it.
  constexpr bool plain() const { return dilation == 1 && stride.vertical == stride.horizontal; }
  // The rows and columns from the first tap to the last.
  constexpr std::int64_t rows() const { return (height - 1) * dilation.vertical + 1; }
  constexpr std::int64_t columns() const { return (width - 1) * dilation.horizontal + 1; }
  // Whether at least one window fits into the padded image.
  constexpr bool fits(const Shape& in) const {
    return in.height + padding.top + padding.bottom >= rows() && in.width + padding.left + padding.right >= columns();
  }
  // One output per position, in floor mode: a last window that does not fit into the padded image is dropped.
  constexpr Shape slide(const Shape& in) const {
    return {in.channels, (in.height + padding.top + padding.bottom - rows()) / stride.vertical + 1,
            (in.width + padding.left + padding.right - columns()) / stride.horizontal + 1};
  }
  // The upper left part of `in` that the windows of `out` read.
  constexpr Shape reads(const Shape& out, const Shape& in) const {
    return {in.channels, std::min(in.height, (out.height - 1) * stride.vertical + rows() - padding.top),
            std::min(in.width, (out.width - 1) * stride.horizontal + columns() - padding.left)};
  }
  // The same window with the bottom and right padding reduced to what slide(in) == out requires.
  constexpr Window2d cropped(const Shape& out, const Shape& in) const {
    Window2d window = *this;
    window.padding.bottom =
        std::max<std::int64_t>(0, (out.height - 1) * stride.vertical + rows() - padding.top - in.height);
    window.padding.right =
        std::max<std::int64_t>(0, (out.width - 1) * stride.horizontal + columns() - padding.left - in.width);
    return window;
  }
  constexpr bool operator==(const Window2d&) const = default;
};

// A square window with the same padding on all sides.
constexpr Window2d square(std::int64_t size, const Pair2d& stride = 1, std::int64_t padding = 0) {
  return {size, size, stride, uniform_padding(padding)};
}

}  // namespace ddp
