// Some consecutive channels of x, optionally shuffled between groups (Zhang et al., ShuffleNet, 2018): channel i of y is
// channel first + (i % groups) * (count / groups) + i / groups of x.
//
//   ChannelSelectSpec half{.batch = 64, .input = {116, 28, 28}, .first = 58, .count = 58};      // x[:, 58:116]
//   ChannelSelectSpec shuffle{.batch = 64, .input = {116, 28, 28}, .count = 116, .groups = 2};
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/ops/description.h"
#include "backend/ops/simple.h"
#include "base/types/shape.h"

namespace ddp {

struct ChannelSelectSpec {
  static constexpr std::string_view kKind = "channel_select";
  static constexpr bool kSimple = true;

  std::int64_t batch = 0;
  Shape input;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t groups = 1;  // divides count

  constexpr Shape output() const { return {count, input.height, input.width}; }
  void describe(Description& text) const { text.add("first", first).add("groups", groups); }
  bool operator==(const ChannelSelectSpec&) const = default;
};

std::unique_ptr<Op> make_cpu_op(const ChannelSelectSpec& spec, Layout layout);
namespace cuda {
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ChannelSelectSpec& spec, Layout layout);
}  // namespace cuda

}  // namespace ddp
