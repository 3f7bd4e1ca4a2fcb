// GELU (Hendrycks and Gimpel, 2016), elementwise: y = x Phi(x), with Phi the distribution function of the standard
// normal distribution.
//
//   GeluSpec spec{.batch = 64, .shape = {384, 8, 8}, .form = GeluForm::exact};
//
// Forms:
//   exact   Phi(x) = (1 + erf(x / sqrt(2))) / 2                                     torch.nn.GELU()
//   tanh    Phi(x) ~ (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2               torch.nn.GELU("tanh")
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/ops/description.h"
#include "backend/ops/simple.h"
#include "base/types/shape.h"

namespace ddp {

enum class GeluForm { exact, tanh };

struct GeluSpec {
  static constexpr std::string_view kKind = "gelu";
  static constexpr bool kSimple = true;
  static constexpr bool kLayer = true;

  std::int64_t batch = 0;
  Shape shape = {};
  GeluForm form = GeluForm::exact;

  void describe(Description& text) const { text.add("tanh", form == GeluForm::tanh); }
  bool operator==(const GeluSpec&) const = default;
};

std::unique_ptr<Op> make_cpu_op(const GeluSpec& spec, Layout layout);
namespace cuda {
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const GeluSpec& spec, Layout layout);
}  // namespace cuda

}  // namespace ddp
