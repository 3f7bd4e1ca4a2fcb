// Average or maximum pooling over windows, in PyTorch's floor mode. Padding is never the maximum.
//
//   PoolSpec spec{.batch = 64, .input = {64, 112, 112}, .kind = PoolSpec::Kind::maximum, .window = square(3, 2, 1)};
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/ops/description.h"
#include "backend/window.h"
#include "base/shape.h"

namespace ddp {

struct PoolSpec {
  static constexpr std::string_view kKind = "pool";
  enum class Kind { average, maximum };

  std::int64_t batch = 0;
  Shape input;
  Kind kind = Kind::average;
  Window2d window = square(2, 2);
  bool count_padding = true;  // averages divide by the window's size; false: by the number of elements inside the input

  constexpr Shape output() const { return window.slide(input); }
  void describe(Description& text) const {
    text.add("kind", kind == Kind::maximum ? std::string_view("max") : std::string_view("average")).add(window);
    text.add("countpadding", count_padding);
  }
  bool operator==(const PoolSpec&) const = default;
};

}  // namespace ddp
