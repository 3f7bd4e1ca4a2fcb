// y = activation(x), elementwise.
//
//   ActivationSpec spec{.batch = 64, .shape = {20, 12, 12}, .activation = Activation::sigmoid};
#pragma once

#include <cstdint>
#include <string_view>

#include "backend/ops/description.h"
#include "base/types/shape.h"

namespace ddp {

// Only none, relu and relu6 can also be fused into another operator.
enum class Activation { none, relu, relu6, sigmoid, tanh };
std::string_view to_string(Activation activation);

struct ActivationSpec {
  static constexpr std::string_view kKind = "activation";

  std::int64_t batch = 0;
  Shape shape;
  Activation activation = Activation::relu;

  void describe(Description& text) const { text.add("activation", to_string(activation)); }
  bool operator==(const ActivationSpec&) const = default;
};

}  // namespace ddp
