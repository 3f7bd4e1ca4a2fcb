// y = x W^T, optionally + b, optionally followed by ReLU. Weight [outputs][inputs], bias [outputs].
//
//   LinearSpec spec{.batch = 64, .inputs = 800, .outputs = 500, .relu = true};
//
// The weight's columns have the plain order of an image that is flattened, [channels][height][width], in every layout of x.
//
// With `parts` the outputs are divided into so many equal parts, one for each rank (Krizhevsky, "One weird trick for
// parallelizing convolutional neural networks", 2014, arXiv 1404.5997): the rank of part p computes the outputs
// [p outputs / parts, (p + 1) outputs / parts) of the samples of all ranks, from these rows of the weight, and only
// their gradient, but for all these samples. Activations and their gradients are exchanged (ShardExchange). Without an
// exchange, as in an evaluation, the operator is the same as with one part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backend/ops/description.h"
#include "base/types/shape.h"

namespace ddp {

struct LinearSpec {
  static constexpr std::string_view kKind = "linear";

  std::int64_t batch = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  bool bias = true;
  bool relu = false;
  bool input_gradient = true;  // whether backward computes dx
  std::int64_t parts = 1;      // a divisor of the outputs
  Shape image = {};            // what is flattened in front, with `inputs` elements; empty: nothing

  constexpr Shape input_shape() const { return image == Shape{} ? Shape{inputs, 1, 1} : image; }
  constexpr std::int64_t positions() const { return input_shape().height * input_shape().width; }
  constexpr Shape output() const { return {outputs, 1, 1}; }
  constexpr std::int64_t parameter_elements(std::size_t which) const {
    return which == 0 ? inputs * outputs : which == 1 && bias ? outputs : 0;
  }
  double multiply_adds() const { return static_cast<double>(batch * inputs * outputs); }
  void describe(Description& text) const {
    text.add("bias", bias).add("relu", relu).add("dx", input_gradient);
    if (parts > 1) text.add("parts", parts);
  }
  bool operator==(const LinearSpec&) const = default;
};

}  // namespace ddp
