// The kernels that are expected to be the fastest, which --deterministic takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/cpu/conv/conv.h"
#include "backend/op_check.h"

namespace ddp {
namespace {

// They can compute the convolution, with AMX wherever that is asked for and possible.
TEST(ExpectedTiles, AreCandidates) {
  const auto has = [](const auto& candidates, const auto& tile) {
    return std::find(candidates.begin(), candidates.end(), tile) != candidates.end();
  };
  for (int round = 0; round < 60; ++round) {
    const ConvSpec spec = random_conv();
    for (const Element element : {Element::fp32, Element::bf16}) {
      for (const bool with_amx : {false, true}) {
        const LanesConvTiles tiles = lanes_expected_tiles(spec, element, with_amx);
        EXPECT_TRUE(has(lanes_forward_candidates(spec, with_amx), tiles.forward)) << describe(spec);
        EXPECT_TRUE(has(lanes_weights_candidates(spec, with_amx), tiles.weights)) << describe(spec);
        EXPECT_EQ(has(lanes_data_candidates(spec, with_amx), tiles.data), spec.input_gradient) << describe(spec);
        EXPECT_EQ(is_amx(tiles.forward), with_amx && !amx_forward_tiles(spec).empty()) << describe(spec);
        EXPECT_EQ(is_amx(tiles.weights), with_amx && !amx_weights_tiles(spec).empty()) << describe(spec);
      }
    }
  }
}

// As the timings of ResNets on a Xeon have it: tiles of 4x4 save the most products, but transform more weights, which counts where
// few positions use them.
TEST(ExpectedTiles, OfWinogradDependOnTheWork) {
  const auto text = [](std::int64_t channels, std::int64_t size, std::int64_t batch) {
    return to_text(lanes_expected_tiles(
        {.batch = batch, .input = {channels, size, size}, .output_channels = channels, .window = square(3, 1, 1)}));
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(text(64, 28, 64), HasSubstr("forward=lanes.winograd4."));
  EXPECT_THAT(text(512, 4, 64), HasSubstr("forward=lanes.winograd4."));
  EXPECT_THAT(text(512, 4, 64), HasSubstr("weights=lanes.winograd4."));
  EXPECT_THAT(text(512, 4, 32), HasSubstr("forward=lanes.winograd2."))
      << "too few samples for four times as many weights";
  EXPECT_THAT(text(512, 4, 32), HasSubstr("weights=lanes.winograd4."));
  EXPECT_THAT(text(512, 4, 1), ::testing::Not(HasSubstr("forward=lanes.winograd")));
  EXPECT_THAT(text(8, 28, 64), ::testing::Not(HasSubstr("winograd"))) << "too few channels for the transforms to pay";
}

}  // namespace
}  // namespace ddp
