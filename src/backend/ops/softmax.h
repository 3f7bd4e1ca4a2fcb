// Softmax over the channels of each position: y = exp(x) / (the sum of exp(x) over the channels).
//
//   SoftmaxSpec spec{.batch = 64, .shape = {197, 14, 14}};
//
// The largest channel is subtracted before, so that nothing overflows. The gradient needs the result alone:
// dx = y (dy - the sum of y dy over the channels). PyTorch's softmax(x, dim=1).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/ops/description.h"
#include "backend/ops/simple.h"
#include "base/types/shape.h"

namespace ddp {

struct SoftmaxSpec {
  static constexpr std::string_view kKind = "softmax";
  static constexpr bool kSimple = true;
  static constexpr bool kLayer = true;

  std::int64_t batch = 0;
  Shape shape = {};

  void describe(Description& /*text*/) const {}
  bool operator==(const SoftmaxSpec&) const = default;
};

std::unique_ptr<Op> make_cpu_op(const SoftmaxSpec& spec, Layout layout);
namespace cuda {
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const SoftmaxSpec& spec, Layout layout);
}  // namespace cuda

}  // namespace ddp
