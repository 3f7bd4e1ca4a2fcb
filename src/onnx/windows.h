// How ONNX says that a window goes over an image: kernel_shape, strides, pads, auto_pad, dilations and ceil_mode.
//
//   const WindowSpec window = window_of(node, 3, 3, 224, 224);
#pragma once

#include <cstdint>

#include "onnx/model.h"

namespace ddp {

struct Padding {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t bottom = 0;
  std::int64_t right = 0;

  bool any() const { return top > 0 || left > 0 || bottom > 0 || right > 0; }
  bool operator==(const Padding&) const = default;
};

struct WindowSpec {
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t stride = 1;
  Padding padding;
  // Rows and columns behind the padding that a last window in ceil_mode covers.
  std::int64_t overhang_bottom = 0;
  std::int64_t overhang_right = 0;

  bool overhangs() const { return overhang_bottom > 0 || overhang_right > 0; }
};

// The window of a Conv, MaxPool or AveragePool node over rows x columns. Throws Error(usage) for dilations, unequal
// strides and paddings that no image can have.
WindowSpec window_of(const OnnxNode& node, std::int64_t height, std::int64_t width, std::int64_t rows,
                     std::int64_t columns);

}  // namespace ddp
