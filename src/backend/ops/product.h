// y = x * x2, elementwise, or with one factor per sample and channel, as in squeeze-and-excitation (Hu et al., 2018).
//
//   ProductSpec spec{.batch = 64, .shape = {96, 28, 28}, .per_channel = true};   // x2 has the shape {96, 1, 1}
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/ops/description.h"
#include "backend/ops/simple.h"
#include "base/types/shape.h"

namespace ddp {

struct ProductSpec {
  static constexpr std::string_view kKind = "product";
  static constexpr bool kSimple = true;

  std::int64_t batch = 0;
  Shape shape;
  bool per_channel = false;

  constexpr int inputs() const { return 2; }
  constexpr Shape further_input(std::size_t /*which*/) const { return per_channel ? Shape{shape.channels} : shape; }
  void describe(Description& text) const { text.add("per_channel", per_channel); }
  bool operator==(const ProductSpec&) const = default;
};

std::unique_ptr<Op> make_cpu_op(const ProductSpec& spec, Layout layout);
namespace cuda {
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ProductSpec& spec, Layout layout);
}  // namespace cuda

}  // namespace ddp
