// y = f(x), elementwise, for functions whose gradient is computed from x.
//
//   PointwiseSpec spec{.batch = 64, .shape = {40, 28, 28}, .function = PointwiseFunction::hardswish};
//   PointwiseSpec leaky{.batch = 64, .shape = {40, 28, 28}, .function = PointwiseFunction::leaky_relu, .alpha = 0.01F};
//
// Functions, as torch.nn defines them:
//   silu         x / (1 + e^-x)                            (Elfwing et al., 2018)
//   hardswish    x min(max(x + 3, 0), 6) / 6               (Howard et al., 2019)
//   hardsigmoid  min(max(x + 3, 0), 6) / 6
//   leaky_relu   x if x > 0, otherwise alpha x
//   elu          x if x > 0, otherwise alpha (e^x - 1)     (Clevert et al., 2016)
//   mish         x tanh(log(1 + e^x))                      (Misra, 2020)
// At a kink the gradient is the one that PyTorch takes.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/ops/description.h"
#include "backend/ops/simple.h"
#include "base/types/shape.h"

namespace ddp {

enum class PointwiseFunction { silu, hardswish, hardsigmoid, leaky_relu, elu, mish };
std::string_view to_string(PointwiseFunction function);

struct PointwiseSpec {
  static constexpr std::string_view kKind = "pointwise";
  static constexpr bool kSimple = true;
  static constexpr bool kLayer = true;

  std::int64_t batch = 0;
  Shape shape = {};
  PointwiseFunction function = PointwiseFunction::silu;
  float alpha = 0;  // of leaky_relu and elu

  void describe(Description& text) const { text.add("function", to_string(function)).add("alpha", alpha); }
  bool operator==(const PointwiseSpec&) const = default;
};

std::unique_ptr<Op> make_cpu_op(const PointwiseSpec& spec, Layout layout);
namespace cuda {
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const PointwiseSpec& spec, Layout layout);
}  // namespace cuda

}  // namespace ddp
