// The window of an ONNX node: kernel_shape, strides, pads, auto_pad, dilations and ceil_mode.
//
//   const OnnxWindow found = window_of(node, 3, 3, 224, 224);
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/window.h"
#include "onnx/file/model.h"

namespace ddp {

struct OnnxWindow {
  Window2d window;
  // Rows and columns beyond the padding that the last window covers in ceil_mode.
  Padding2d overhang = {};
};

// An attribute of two numbers, for height and width. Throws Error(usage) if they are below `least`.
Pair2d pair_of(const OnnxNode& node, std::string_view attribute, std::int64_t otherwise, std::int64_t least);

// The window of a Conv, ConvTranspose, MaxPool or AveragePool node over an image of rows x columns. Throws Error(usage)
// for padding that is not four non-negative numbers.
OnnxWindow window_of(const OnnxNode& node, std::int64_t height, std::int64_t width, std::int64_t rows,
                     std::int64_t columns);

// The window of a ConvTranspose node, whose padding is cut off the output, and the rows and columns at the end of it.
struct TransposedWindow {
  Window2d window;
  Pair2d output_padding = 0;
};

// Over an input of rows x columns. output_shape, or auto_pad SAME with outputs of the input's size times the stride, give
// the padding as the ONNX standard and ONNX Runtime compute it. Throws Error(usage) as window_of() does.
TransposedWindow transposed_window_of(const OnnxNode& node, std::int64_t height, std::int64_t width, std::int64_t rows,
                                      std::int64_t columns);

}  // namespace ddp
