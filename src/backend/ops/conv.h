// 2-D convolution (cross-correlation), optionally with bias, and followed by ReLU and 2x2 average pooling of stride 2.
//
//   ConvSpec spec{.batch = 64, .input = {1, 28, 28}, .output_channels = 20, .window = square(5)};
//   spec.output();   // {20, 24, 24}
//
// Weight [output_channels][channels / groups][window.height][window.width], bias [output_channels].
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backend/ops/description.h"
#include "backend/window.h"
#include "base/types/shape.h"

namespace ddp {

struct ConvSpec {
  static constexpr std::string_view kKind = "conv";

  std::int64_t batch = 0;
  Shape input;
  std::int64_t output_channels = 0;
  Window2d window = {};
  std::int64_t groups = 1;  // output channel o reads the channels of group o / (output_channels / groups)
  bool bias = true;
  bool relu = false;
  bool average_pool = false;   // only with relu, and with even height and width of the convolution's output
  bool input_gradient = true;  // whether backward computes dx

  constexpr std::int64_t weights() const { return output_channels * (input.channels / groups) * window.elements(); }
  // The convolution's own output, before pooling.
  constexpr Shape convolved() const {
    const Shape out = window.slide(input);
    return {output_channels, out.height, out.width};
  }

  constexpr Shape output() const {
    const Shape shape = convolved();
    return average_pool ? Shape{shape.channels, shape.height / 2, shape.width / 2} : shape;
  }
  constexpr std::int64_t parameter_elements(std::size_t which) const {
    return which == 0 ? weights() : which == 1 && bias ? output_channels : 0;
  }
  double multiply_adds() const {
    return static_cast<double>(batch * convolved().height * convolved().width * weights());
  }
  void describe(Description& text) const {
    text.add(window).add("groups", groups).add("bias", bias).add("relu", relu).add("pool", average_pool);
    text.add("dx", input_gradient);
  }
  bool operator==(const ConvSpec&) const = default;
};

}  // namespace ddp
