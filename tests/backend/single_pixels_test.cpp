// Tests convolutions of single pixels in lanes16 with all tiles: with more input channels than the first-level cache holds of a
// tile, whose kernels process them in blocks, with output channels below and above the limit for that, and with fewer or more
// of these than input channels, of which weight gradients have the fewer ones in the lanes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/cpu/conv/conv.h"
#include "backend/op_check.h"

namespace ddp {
namespace {

template <class Tile>
Tile pick(const std::vector<Tile>& all) {
  return all[static_cast<std::size_t>(random_between(0, static_cast<std::int64_t>(all.size()) - 1))];
}

void check(ConvSpec spec) {
  const auto backend = make_cpu_backend();
  spec.bias = random_between(0, 1) == 1;
  spec.relu = spec.bias && random_between(0, 1) == 1;
  const LanesConvTiles tiles{pick(lanes_forward_candidates(spec)), pick(lanes_data_candidates(spec)),
                             pick(lanes_weights_candidates(spec))};
  const auto op = make_lanes_conv(spec, tiles);
  const std::int64_t active = random_between(1, spec.batch);
  check_op({*backend, *op, spec, Layout::lanes16, Layout::lanes16, active, 1e-5,
            describe(spec) + " active " + std::to_string(active) + " " + to_text(tiles)});
}

TEST(LanesSinglePixels, ManyChannelsAgreeWithTheReference) {
  for (int round = 0; round < 40; ++round) {
    const std::int64_t most = round % 5 == 0 ? 20 : 9;
    const bool narrows = round % 3 != 0;
    const std::int64_t groups = round % 4 == 0 ? 2 : 1;
    check({.batch = random_between(1, 20),
           .input = {groups * (narrows ? random_between(100, 300) : random_between(1, 40)), random_between(7, most),
                     random_between(7, most)},
           .output_channels = groups * (narrows ? random_between(1, 40) : random_between(100, 300)),
           .groups = groups});
    if (HasFatalFailure()) return;
  }
}

// They are copied in bands, where others are read in place.
TEST(LanesSinglePixels, LargeImagesAgreeWithTheReference) {
  for (int round = 0; round < 20; ++round) {
    const std::int64_t groups = round % 4 == 0 ? 2 : 1;
    check({.batch = random_between(1, 34),
           .input = {groups * random_between(1, 40), random_between(32, 40), random_between(33, 40)},
           .output_channels = groups * random_between(1, 40),
           .groups = groups});
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace ddp
