// The elements of each sample in the order [H][W][C], as a vector: PyTorch's permute(0, 2, 3, 1).flatten(1). In nhwc
// this is a copy.
//
//   ChannelsLastSpec spec{.batch = 64, .input = {50, 4, 4}};
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/ops/description.h"
#include "base/types/shape.h"

namespace ddp {

struct ChannelsLastSpec {
  static constexpr std::string_view kKind = "tovector";

  std::int64_t batch = 0;
  Shape input;

  constexpr Shape output() const { return {input.elements(), 1, 1}; }
  void describe(Description& /*text*/) const {}
  bool operator==(const ChannelsLastSpec&) const = default;
};

}  // namespace ddp
