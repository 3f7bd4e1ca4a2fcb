// Local response normalisation over `size` neighbouring channels (Krizhevsky et al., 2012), as in
// torch.nn.LocalResponseNorm.
//
//   LrnSpec spec{.batch = 64, .shape = {96, 27, 27}, .size = 5};
//
// Definition:
//   y = x / (k + alpha / size * sum of x^2 over channels c - size/2 .. c + (size-1)/2)^beta
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/ops/description.h"
#include "backend/ops/simple.h"
#include "base/types/shape.h"

namespace ddp {

struct LrnSpec {
  static constexpr std::string_view kKind = "lrn";
  static constexpr bool kSimple = true;

  std::int64_t batch = 0;
  Shape shape;
  std::int64_t size = 5;
  float alpha = 1e-4F;
  float beta = 0.75F;
  float k = 1;

  void describe(Description& text) const { text.add("size", size).add("beta", beta); }
  bool operator==(const LrnSpec&) const = default;
};

std::unique_ptr<Op> make_cpu_op(const LrnSpec& spec, Layout layout);
namespace cuda {
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const LrnSpec& spec, Layout layout);
}  // namespace cuda

}  // namespace ddp
