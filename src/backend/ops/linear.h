// y = x W^T, optionally + b, optionally followed by ReLU. Weight [outputs][inputs], bias [outputs].
//
//   LinearSpec spec{.batch = 64, .inputs = 800, .outputs = 500, .relu = true};
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backend/ops/description.h"
#include "base/shape.h"

namespace ddp {

struct LinearSpec {
  static constexpr std::string_view kKind = "linear";

  std::int64_t batch = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  bool bias = true;
  bool relu = false;
  bool input_gradient = true;  // whether backward computes dx

  constexpr Shape input_shape() const { return {inputs, 1, 1}; }
  constexpr Shape output() const { return {outputs, 1, 1}; }
  constexpr std::int64_t parameter_elements(std::size_t which) const {
    return which == 0 ? inputs * outputs : which == 1 && bias ? outputs : 0;
  }
  double multiply_adds() const { return static_cast<double>(batch * inputs * outputs); }
  void describe(Description& text) const { text.add("bias", bias).add("relu", relu).add("dx", input_gradient); }
  bool operator==(const LinearSpec&) const = default;
};

}  // namespace ddp
