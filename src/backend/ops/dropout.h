// Dropout (Srivastava et al., 2014): in training each element becomes 0 with probability `rate`, otherwise it is
// divided by 1 - rate; in evaluation y = x.
//
//   DropoutSpec spec{.batch = 64, .shape = {4096, 1, 1}, .rate = 0.5F, .stream = 17};
//
// Which elements: dropout_keeps() of backend/arithmetic.h, a function of the sample's key, the operator's `stream` and
// the element's index in PyTorch's order, identical in every layout and on every device.
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/ops/description.h"
#include "base/shape.h"

namespace ddp {

struct DropoutSpec {
  static constexpr std::string_view kKind = "dropout";

  std::int64_t batch = 0;
  Shape shape;
  float rate = 0.5F;
  std::uint32_t stream = 0;  // distinct for each dropout of a network

  void describe(Description& /*text*/) const {}  // kernels depend on the shape only
  bool operator==(const DropoutSpec&) const = default;
};

}  // namespace ddp
