// The channels of x followed by those of x2: torch.cat((x, x2), dim=1).
//
//   ConcatSpec spec{.batch = 64, .input = {64, 28, 28}, .second_channels = 32};   // y has the shape {96, 28, 28}
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/ops/description.h"
#include "backend/ops/simple.h"
#include "base/types/shape.h"

namespace ddp {

struct ConcatSpec {
  static constexpr std::string_view kKind = "concat";
  static constexpr bool kSimple = true;

  std::int64_t batch = 0;
  Shape input;
  std::int64_t second_channels = 0;

  constexpr int inputs() const { return 2; }
  constexpr Shape further_input(std::size_t /*which*/) const { return {second_channels, input.height, input.width}; }
  constexpr Shape output() const { return {input.channels + second_channels, input.height, input.width}; }
  // The shapes of x and y say all.
  void describe(Description& /*text*/) const {}
  bool operator==(const ConcatSpec&) const = default;
};

std::unique_ptr<Op> make_cpu_op(const ConcatSpec& spec, Layout layout);
namespace cuda {
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ConcatSpec& spec, Layout layout);
}  // namespace cuda

}  // namespace ddp
