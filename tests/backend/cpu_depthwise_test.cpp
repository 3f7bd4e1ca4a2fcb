// Tests the CPU backend's own depthwise convolutions, in lanes16 and in nhwc.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/conv/conv.h"
#include "backend/cpu/conv/depthwise/depthwise.h"
#include "backend/op_check.h"

namespace ddp {
namespace {

// Windows larger than the image, single-pixel planes, stride phases without taps or pixels.
ConvSpec random_depthwise(int round, std::int64_t channels, std::int64_t batch) {
  ConvSpec spec{
      .batch = batch,
      .input = {channels, random_between(1, 21), random_between(1, 21)},
      .output_channels = channels,
      .window = {.height = random_between(1, 9), .width = random_between(1, 9), .stride = random_between(1, 4)},
      .groups = channels,
      .bias = round % 2 == 0,
      .input_gradient = round % 5 != 0};
  spec.window.padding.top = random_between(0, spec.window.height / 2);
  spec.window.padding.left = random_between(0, spec.window.width / 2);
  // At least one window.
  spec.window.padding.bottom =
      std::max(spec.window.height / 2, spec.window.height - spec.input.height - spec.window.padding.top);
  spec.window.padding.right =
      std::max(spec.window.width / 2, spec.window.width - spec.input.width - spec.window.padding.left);
  return spec;
}

// With a random number of active samples.
void check_depthwise(Op& op, const ConvSpec& spec, Layout layout) {
  const auto backend = make_cpu_backend();
  const std::int64_t active = random_between(0, spec.batch);
  check_op({*backend, op, spec, layout, layout, active, 1e-5, describe(spec) + " active " + std::to_string(active)});
}

TEST(LanesConv, DepthwiseAgreesWithTheReference) {
  for (int round = 0; round < 40; ++round) {
    const ConvSpec spec = random_depthwise(round, random_between(2, 5), random_between(1, 40));
    ASSERT_TRUE(lanes_depthwise_supported(spec));
    const auto op = make_lanes_depthwise(spec);
    check_depthwise(*op, spec, Layout::lanes16);
    if (HasFatalFailure()) return;
  }
}

// The same channels-last; channels that fill no vector, and many enough for several blocks of 16.
TEST(LanesConv, DepthwiseOfSlabsAgreesWithTheReference) {
  for (int round = 0; round < 60; ++round) {
    const ConvSpec spec = random_depthwise(round, random_between(2, 40), random_between(1, 9));
    ASSERT_TRUE(nhwc_depthwise_supported(spec));
    const auto op = make_nhwc_depthwise(spec);
    check_depthwise(*op, spec, Layout::nhwc);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace ddp
