// The CPU backend's kernels one by one: every tile, format and instruction set, not only those that it chooses.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/lanes_conv.h"
#include "backend/cpu/lanes_kernels.h"
#include "backend/cpu/operators.h"
#include "backend/op_check.h"
#include "base/error.h"

namespace ddp {
namespace {

// All samples from `active` on are zero.
void check_kernel(Op& op, const OpSpec& spec, Layout layout, std::int64_t active, const std::string& what) {
  const auto backend = make_cpu_backend();
  check_op({*backend, op, spec, layout, layout, active, 1e-5, what});
}

TEST(LanesConv, EveryTileAgreesWithTheReference) {
  for (int round = 0; round < 60; ++round) {
    ConvSpec spec = random_conv(round % 3 + 1, round % 2 == 0 ? 1 : 5);
    if (spec.stride > 1) spec.average_pool = false;
    ASSERT_TRUE(lanes_conv_supported(spec));
    LanesConvTiles tiles = lanes_fixed_tiles(spec);
    const auto pick = [](const std::vector<int>& all) {
      return all[static_cast<std::size_t>(random_between(0, static_cast<std::int64_t>(all.size()) - 1))];
    };
    tiles.forward = pick(lanes_forward_candidates(spec));
    if (spec.input_gradient) tiles.data = pick(lanes_data_candidates(spec));
    tiles.weights = pick(lanes_weights_candidates(spec));
    const auto op = make_lanes_conv(spec, tiles);
    const std::int64_t active = random_between(1, spec.batch);
    check_kernel(*op, spec, Layout::lanes16, active,
                 describe(spec) + " active " + std::to_string(active) + " " + to_text(tiles));
    if (HasFatalFailure()) return;
  }
}

TEST(LanesConv, ALargeBatchCrossesChunks) {
  ConvSpec spec{.batch = 150,
                .input = {3, 8, 8},
                .output_channels = 6,
                .kernel_h = 3,
                .kernel_w = 3,
                .relu = true,
                .average_pool = true};
  const auto op = make_lanes_conv(spec, lanes_fixed_tiles(spec));
  check_kernel(*op, spec, Layout::lanes16, 150, "chunks");
  check_kernel(*op, spec, Layout::lanes16, 70, "chunks, part active");
}

TEST(LanesConv, AnEmptyShardHasZeroGradients) {
  ConvSpec spec{.batch = 16, .input = {1, 6, 6}, .output_channels = 2, .kernel_h = 3, .kernel_w = 3};
  const auto op = make_lanes_conv(spec, lanes_fixed_tiles(spec));
  check_kernel(*op, spec, Layout::lanes16, 0, "empty");
}

// Windows larger than the image, planes of one pixel, phases of a stride without taps or pixels.
TEST(LanesConv, DepthwiseAgreesWithTheReference) {
  for (int round = 0; round < 40; ++round) {
    const std::int64_t channels = random_between(2, 5);
    ConvSpec spec{.batch = random_between(1, 40),
                  .input = {channels, random_between(1, 21), random_between(1, 21)},
                  .output_channels = channels,
                  .kernel_h = random_between(1, 9),
                  .kernel_w = random_between(1, 9),
                  .stride = random_between(1, 4),
                  .groups = channels,
                  .bias = round % 2 == 0,
                  .input_gradient = round % 5 != 0};
    spec.pad_top = random_between(0, spec.kernel_h / 2);
    spec.pad_left = random_between(0, spec.kernel_w / 2);
    // At least one window.
    spec.pad_bottom = std::max(spec.kernel_h / 2, spec.kernel_h - spec.input.height - spec.pad_top);
    spec.pad_right = std::max(spec.kernel_w / 2, spec.kernel_w - spec.input.width - spec.pad_left);
    ASSERT_TRUE(lanes_depthwise_supported(spec));
    const auto op = make_lanes_depthwise(spec);
    const std::int64_t active = random_between(0, spec.batch);
    check_kernel(*op, spec, Layout::lanes16, active, describe(spec) + " active " + std::to_string(active));
    if (HasFatalFailure()) return;
  }
}

TEST(LanesConv, TilesTravelAsText) {
  for (int round = 0; round < 20; ++round) {
    const ConvSpec spec = random_conv();
    const LanesConvTiles tiles = lanes_fixed_tiles(spec);
    EXPECT_EQ(to_text(lanes_tiles_from_text(spec, to_text(tiles))), to_text(tiles));
  }
  EXPECT_THROW(lanes_tiles_from_text(random_conv(), "forward=lanes.99x1x1"), Error);
}

TEST(OneDnnConv, EveryFormatAgreesWithTheReference) {
  int built = 0;
  for (int round = 0; round < 20; ++round) {
    const ConvSpec spec = random_conv(2);
    for (const char* name : {"nhwc", "any", "winograd"}) {
      const auto op = make_onednn_conv(spec, {name, name, name});
      if (op == nullptr) continue;
      ++built;
      check_kernel(*op, spec, Layout::nhwc, spec.batch, describe(spec) + " " + name);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GE(built, 40);
}

TEST(Linear, BothKernelsAgreeWithTheReference) {
  for (int round = 0; round < 30; ++round) {
    const LinearSpec spec{.batch = random_between(1, 130),
                          .inputs = random_between(1, 70),
                          .outputs = random_between(1, 30),
                          .relu = random_between(0, 1) == 1,
                          .input_gradient = random_between(0, 1) == 1};
    const auto own = make_lanes_linear(spec);
    check_kernel(*own, spec, Layout::lanes16, random_between(1, spec.batch), "lanes linear");
    const auto onednn = make_onednn_linear(spec);
    check_kernel(*onednn, spec, Layout::plain, spec.batch, "oneDNN linear");
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace ddp
