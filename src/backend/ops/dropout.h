// Dropout (Srivastava et al., 2014): in training each unit becomes 0 with probability `rate`, otherwise it is
// divided by 1 - rate; in evaluation y = x.
//
//   DropoutSpec spec{.batch = 64, .shape = {4096, 1, 1}, .rate = 0.5F, .stream = 17};
//   DropoutSpec depth{.batch = 64, .shape = {24, 56, 56}, .rate = 0.1F, .stream = 18, .unit = DropoutUnit::sample};
//
// A unit is an element, a channel of a sample (spatial dropout: Tompson et al., 2015; PyTorch's Dropout2d), or a sample
// (stochastic depth: Huang et al., 2016; torchvision's StochasticDepth with mode "row").
//
// Which units: dropout_keeps() of backend/arithmetic.h, a function of the sample's key, the operator's `stream` and
// the unit's index in PyTorch's order, identical in every layout and on every device.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/ops/description.h"
#include "backend/ops/simple.h"
#include "base/types/shape.h"

namespace ddp {

enum class DropoutUnit { element, channel, sample };

struct DropoutSpec {
  static constexpr std::string_view kKind = "dropout";
  static constexpr bool kSimple = true;

  std::int64_t batch = 0;
  Shape shape;
  float rate = 0.5F;
  std::uint32_t stream = 0;  // distinct for each dropout of a network
  DropoutUnit unit = DropoutUnit::element;

  // The number of elements that are kept or dropped together, consecutive in PyTorch's order.
  constexpr std::int64_t unit_elements() const {
    if (unit == DropoutUnit::element) return 1;
    return unit == DropoutUnit::channel ? shape.height * shape.width : shape.elements();
  }

  void describe(Description& /*text*/) const {}  // kernels depend on the shape only
  bool operator==(const DropoutSpec&) const = default;
};

std::unique_ptr<Op> make_cpu_op(const DropoutSpec& spec, Layout layout);
namespace cuda {
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const DropoutSpec& spec, Layout layout);
}  // namespace cuda

}  // namespace ddp
