// Rows and columns around an image, copied from it: PyTorch's ReflectionPad2d, where the border is not repeated, and
// ReplicationPad2d, which repeats it. Zeros are padding of a window (backend/window.h).
//
//   PadSpec spec{.batch = 64, .input = {3, 32, 32}, .padding = uniform_padding(2), .mode = PadMode::reflect};
//   padded_source(-1, 32, PadMode::reflect);   // 1: the row that the first row above the image shows
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/ops/description.h"
#include "backend/ops/simple.h"
#include "backend/window.h"
#include "base/types/shape.h"

namespace ddp {

enum class PadMode { reflect, replicate };

// The row of an image of `size` rows that row `place` shows, which may be outside of it; reflections are of less than
// `size` rows.
constexpr std::int64_t padded_source(std::int64_t place, std::int64_t size, PadMode mode) {
  if (mode == PadMode::replicate) return std::clamp<std::int64_t>(place, 0, size - 1);
  if (place < 0) return -place;
  return place < size ? place : 2 * (size - 1) - place;
}

struct PadSpec {
  static constexpr std::string_view kKind = "pad";
  static constexpr bool kSimple = true;

  std::int64_t batch = 0;
  Shape input;
  Padding2d padding;
  PadMode mode = PadMode::reflect;

  constexpr Shape output() const {
    return {input.channels, input.height + padding.top + padding.bottom, input.width + padding.left + padding.right};
  }
  void describe(Description& text) const {
    text.add("mode", mode == PadMode::reflect ? std::string_view("reflect") : std::string_view("replicate"));
    text.add("top", padding.top).add("left", padding.left);
  }
  bool operator==(const PadSpec&) const = default;
};

std::unique_ptr<Op> make_cpu_op(const PadSpec& spec, Layout layout);
namespace cuda {
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const PadSpec& spec, Layout layout);
}  // namespace cuda

}  // namespace ddp
