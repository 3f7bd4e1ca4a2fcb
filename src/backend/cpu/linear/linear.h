// Linear layers by own kernels; those of oneDNN are in onednn/onednn.h.
//
//   std::unique_ptr<Op> op = make_lanes_linear(spec);
#pragma once

#include <memory>

#include "backend/op.h"

namespace ddp {

// x and y in lanes16.
std::unique_ptr<Op> make_lanes_linear(const LinearSpec& spec);
// The same on bf16 activations, with products of pairs of bf16 numbers.
inline constexpr const char* kLanesBf16Linear = "lanes.bf16-linear";
std::unique_ptr<Op> make_lanes_bf16_linear(const LinearSpec& spec);

// x and y plain; for several parts.
std::unique_ptr<Op> make_split_linear(const LinearSpec& spec);

}  // namespace ddp
