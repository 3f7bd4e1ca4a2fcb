// The same values in another layout.
//
//   ReorderSpec spec{.batch = 64, .shape = {20, 12, 12}};
//   backend.ops().make_op(spec, Layout::plain, Layout::nhwc, "");
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/ops/description.h"
#include "base/types/shape.h"

namespace ddp {

struct ReorderSpec {
  static constexpr std::string_view kKind = "reorder";

  std::int64_t batch = 0;
  Shape shape;

  void describe(Description& /*text*/) const {}
  bool operator==(const ReorderSpec&) const = default;
};

}  // namespace ddp
