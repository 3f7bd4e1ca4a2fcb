// y = activation(x + x2), where the activation is none, ReLU or ReLU6.
//
//   AddSpec spec{.batch = 64, .shape = {64, 56, 56}, .activation = Activation::relu};
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/ops/activation.h"

namespace ddp {

struct AddSpec {
  static constexpr std::string_view kKind = "add";

  std::int64_t batch = 0;
  Shape shape;
  Activation activation = Activation::none;

  constexpr int inputs() const { return 2; }
  void describe(Description& text) const { text.add("activation", to_string(activation)); }
  bool operator==(const AddSpec&) const = default;
};

}  // namespace ddp
