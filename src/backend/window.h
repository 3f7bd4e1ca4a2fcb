// The sliding window of a convolution or pooling, shared by ONNX, layers, operators and kernels.
//
//   constexpr Window2d kWindow = square(3, /*stride=*/2, /*padding=*/1);
//   const Shape out = kWindow.slide({64, 56, 56});   // {64, 28, 28}
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/shape.h"

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

struct Window2d {
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t stride = 1;  // vertical and horizontal
  Padding2d padding = {};

  constexpr std::int64_t elements() const { return height * width; }
  // Whether at least one window fits into the padded image.
  constexpr bool fits(const Shape& in) const {
    return in.height + padding.top + padding.bottom >= height && in.width + padding.left + padding.right >= width;
  }
  // One output per position, in floor mode: a last window that does not fit into the padded image is dropped.
  constexpr Shape slide(const Shape& in) const {
    return {in.channels, (in.height + padding.top + padding.bottom - height) / stride + 1,
            (in.width + padding.left + padding.right - width) / stride + 1};
  }
  // The upper left part of `in` that the windows of `out` read.
  constexpr Shape reads(const Shape& out, const Shape& in) const {
    return {in.channels, std::min(in.height, (out.height - 1) * stride + height - padding.top),
            std::min(in.width, (out.width - 1) * stride + width - padding.left)};
  }
  // The same window with the bottom and right padding reduced to what slide(in) == out requires.
  constexpr Window2d cropped(const Shape& out, const Shape& in) const {
    Window2d window = *this;
    window.padding.bottom = std::max<std::int64_t>(0, (out.height - 1) * stride + height - padding.top - in.height);
    window.padding.right = std::max<std::int64_t>(0, (out.width - 1) * stride + width - padding.left - in.width);
    return window;
  }
  constexpr bool operator==(const Window2d&) const = default;
};

// A square window with the same padding on all sides.
constexpr Window2d square(std::int64_t size, std::int64_t stride = 1, std::int64_t padding = 0) {
  return {size, size, stride, uniform_padding(padding)};
}

}  // namespace ddp
