// Tests convolutions of single pixels in lanes16 with more input channels than the first-level cache holds of a tile, whose
// kernels process them in blocks; with output channels below and above the limit for that.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/cpu/lanes_conv.h"
#include "backend/cpu/operators.h"
#include "backend/op_check.h"

namespace ddp {
namespace {

TEST(LanesSinglePixels, ManyChannelsAgreeWithTheReference) {
  const auto backend = make_cpu_backend();
  const auto pick = [](const std::vector<int>& all) {
    return all[static_cast<std::size_t>(random_between(0, static_cast<std::int64_t>(all.size()) - 1))];
  };
  for (int round = 0; round < 30; ++round) {
    // The larger images are copied in bands, the others read in place.
    const std::int64_t most = round % 5 == 0 ? 20 : 9;
    const bool narrows = round % 3 != 0;
    ConvSpec spec{.batch = random_between(1, 20),
                  .input = {narrows ? random_between(100, 300) : random_between(1, 40), random_between(7, most),
                            random_between(7, most)},
                  .output_channels = narrows ? random_between(1, 40) : random_between(100, 300)};
    spec.bias = random_between(0, 1) == 1;
    spec.relu = spec.bias && random_between(0, 1) == 1;
    LanesConvTiles tiles = lanes_fixed_tiles(spec);
    tiles.forward = pick(lanes_forward_candidates(spec));
    tiles.data = pick(lanes_data_candidates(spec));
    const auto op = make_lanes_conv(spec, tiles);
    const std::int64_t active = random_between(1, spec.batch);
    check_op({*backend, *op, spec, Layout::lanes16, Layout::lanes16, active, 1e-5,
              describe(spec) + " active " + std::to_string(active) + " " + to_text(tiles)});
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace ddp
