// Depthwise convolutions, in which each output channel reads the input channel with the same index; no epilogue.
//
//   if (lanes_depthwise_supported(spec)) op = make_lanes_depthwise(spec);
#pragma once

#include <memory>

#include "backend/op.h"

namespace ddp {

// x and y in lanes16.
inline constexpr const char* kLanesDepthwise = "lanes.depthwise";
bool lanes_depthwise_supported(const ConvSpec& spec);
std::unique_ptr<Op> make_lanes_depthwise(const ConvSpec& spec);
// On bf16 activations, with products of pairs in the weight gradient.
std::unique_ptr<Op> make_lanes_bf16_depthwise(const ConvSpec& spec);

// x and y in nhwc.
inline constexpr const char* kNhwcDepthwise = "nhwc.depthwise";
bool nhwc_depthwise_supported(const ConvSpec& spec);
std::unique_ptr<Op> make_nhwc_depthwise(const ConvSpec& spec);

}  // namespace ddp
