// 2-D transposed convolution, PyTorch's ConvTranspose2d: the gradient of a convolution's input, as a layer. Element x of
// the input adds weight * x at the window's place in the output.
//
//   ConvTransposeSpec spec{.batch = 64, .input = {32, 7, 7}, .output_channels = 16, .window = square(4, 2, 1)};
//   spec.output();   // {16, 14, 14}
//
// Weight [channels][output_channels / groups][window.height][window.width], bias [output_channels].
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backend/ops/conv.h"
#include "backend/ops/description.h"
#include "backend/window.h"
#include "base/types/shape.h"

namespace ddp {

struct ConvTransposeSpec {
  static constexpr std::string_view kKind = "conv_transpose";

  std::int64_t batch = 0;
  Shape input;
  std::int64_t output_channels = 0;
  Window2d window = {};       // of the convolution whose input gradient this is; its padding is cut off the output
  Pair2d output_padding = 0;  // rows and columns at the end of the output, less than the strides
  std::int64_t groups = 1;
  bool bias = true;
  bool input_gradient = true;  // whether backward computes dx

  constexpr Shape output() const {
    const Padding2d& p = window.padding;
    return {
        output_channels,
        (input.height - 1) * window.stride.vertical + window.rows() + output_padding.vertical - p.top - p.bottom,
        (input.width - 1) * window.stride.horizontal + window.columns() + output_padding.horizontal - p.left - p.right};
  }
  // The convolution from `output` to `input` with the same weights.
  constexpr ConvSpec mirror() const {
    return {.batch = batch,
            .input = output(),
            .output_channels = input.channels,
            .window = window,
            .groups = groups,
            .bias = false};
  }
  constexpr std::int64_t parameter_elements(std::size_t which) const {
    return which == 0 ? mirror().weights() : which == 1 && bias ? output_channels : 0;
  }
  double multiply_adds() const { return mirror().multiply_adds(); }
  void describe(Description& text) const {
    text.add(window).add("groups", groups).add("bias", bias).add("dx", input_gradient);
  }
  bool operator==(const ConvTransposeSpec&) const = default;
};

}  // namespace ddp
