// Average or maximum pooling over windows, in PyTorch's floor mode. Padding is never the maximum, and every window covers
// at least one element.
//
//   PoolSpec spec{.batch = 64, .input = {64, 112, 112}, .kind = PoolSpec::Kind::maximum, .window = square(3, 2, 1)};
//   PoolSpec adaptive{.batch = 64, .input = {64, 10, 9}, .adaptive_height = 7, .adaptive_width = 7};
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/ops/description.h"
#include "backend/window.h"
#include "base/types/shape.h"

namespace ddp {

struct PoolSpec {
  static constexpr std::string_view kKind = "pool";
  enum class Kind { average, maximum };

  std::int64_t batch = 0;
  Shape input;
  Kind kind = Kind::average;
  Window2d window = square(2, 2);
  bool count_padding = true;  // averages divide by the window's size; false: by the number of elements inside the input

  // Not 0: averages of PyTorch's AdaptiveAvgPool2d. The output has this size; row i of n is the average of the rows from
  // floor(i * height / n) to ceil((i + 1) * height / n), and `window` is not used.
  std::int64_t adaptive_height = 0;
  std::int64_t adaptive_width = 0;

  constexpr bool adaptive() const { return adaptive_height > 0; }
  constexpr Shape output() const {
    return adaptive() ? Shape{input.channels, adaptive_height, adaptive_width} : window.slide(input);
  }
  void describe(Description& text) const {
    if (adaptive()) {
      text.add("kind", std::string_view("adaptive average"));
      return;
    }
    text.add("kind", kind == Kind::maximum ? std::string_view("max") : std::string_view("average")).add(window);
    text.add("countpadding", count_padding);
  }
  bool operator==(const PoolSpec&) const = default;
};

}  // namespace ddp
