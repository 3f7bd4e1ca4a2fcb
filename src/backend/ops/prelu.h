// y = x if x > 0, otherwise weight * x, with one trained weight per channel, or one for all (He et al., 2015).
//
//   PreluSpec spec{.batch = 64, .shape = {40, 28, 28}};
//   PreluSpec one{.batch = 64, .shape = {40, 28, 28}, .shared = true};
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/ops/description.h"
#include "backend/ops/simple.h"
#include "base/types/shape.h"

namespace ddp {

struct PreluSpec {
  static constexpr std::string_view kKind = "prelu";
  static constexpr bool kSimple = true;

  std::int64_t batch = 0;
  Shape shape;
  bool shared = false;  // one weight for all channels

  constexpr std::int64_t parameter_elements(std::size_t which) const {
    if (which != 0) return 0;
    return shared ? 1 : shape.channels;
  }
  void describe(Description& text) const { text.add("shared", shared); }
  bool operator==(const PreluSpec&) const = default;
};

std::unique_ptr<Op> make_cpu_op(const PreluSpec& spec, Layout layout);
namespace cuda {
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const PreluSpec& spec, Layout layout);
}  // namespace cuda

}  // namespace ddp
