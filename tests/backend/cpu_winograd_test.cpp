// Tests Winograd's algorithm on the CPU: every form of it, in fp32 and bf16, against the reference in double precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/conv/conv.h"
#include "backend/cpu/conv/winograd/winograd.h"
#include "backend/op_check.h"

namespace ddp {
namespace {

// In bf16 each factor is off by up to 2^-8 of its size, and the sums of products by the root of their number. The factors
// are themselves sums of up to 16 values, and their products cancel in an output: with one channel, errors reach 1.05 %
// of the largest output in 4000 shapes of up to 10^5 outputs.
double tolerance(Element element) { return element == Element::bf16 ? 2e-2 : 1e-5; }

// Tiles that compute all directions by Winograd's algorithm with tiles of `size` results.
LanesConvTiles winograd_tiles(const ConvSpec& spec, Element element, int size) {
  const auto pick_if = [](const auto& all, const auto& condition) {
    std::decay_t<decltype(all)> found;
    std::copy_if(all.begin(), all.end(), std::back_inserter(found), condition);
    EXPECT_FALSE(found.empty());
    return found.at(static_cast<std::size_t>(random_between(0, static_cast<std::int64_t>(found.size()) - 1)));
  };
  const auto is_of_size = [&](const auto& tile) {
    return is_winograd(tile) && winograd_form(tile.form, element).size == size;
  };
  LanesConvTiles tiles;
  tiles.forward = pick_if(lanes_forward_candidates(spec), is_of_size);
  if (spec.input_gradient) tiles.data = pick_if(lanes_data_candidates(spec), is_of_size);
  tiles.weights = pick_if(lanes_weights_candidates(spec), is_of_size);
  return tiles;
}

std::unique_ptr<Op> make_conv(const ConvSpec& spec, Element element, const LanesConvTiles& tiles) {
  return element == Element::bf16 ? make_lanes_bf16_conv(spec, tiles) : make_lanes_conv(spec, tiles);
}

// Random values that are not exact in bf16, where the roundings of the transforms and of the other products show, and what
// the reference computes of them.
class RandomValues {
 public:
  explicit RandomValues(const ConvSpec& spec)
      : spec_(spec),
        in_{.inputs = {random_values(spec.batch * spec.input.elements())},
            .parameters = {random_values(spec.weights()), random_values(spec.bias ? spec.output_channels : 0), {}}},
        dy_(random_values(spec.batch * spec.output().elements())),
        expected_{reference::forward(spec, in_), reference::backward(spec, in_, dy_), reference::forward(spec, in_).y} {
  }

  void check(Element element, int size) {
    const LanesConvTiles tiles = winograd_tiles(spec_, element, size);
    const auto op = make_conv(spec_, element, tiles);
    const auto backend = make_cpu_backend(element == Element::bf16 ? Precision::bf16 : Precision::fp32);
    check_op({*backend, *op, spec_, Layout::lanes16, Layout::lanes16, spec_.batch, tolerance(element),
              describe(spec_) + " " + to_text(tiles)},
             in_, dy_, expected_);
  }

 private:
  ConvSpec spec_;
  reference::Inputs in_;
  reference::Values dy_;
  Expected expected_;
};

std::vector<int> sizes_for(const ConvSpec& spec) {
  return spec.window.height == 3 && spec.window.stride == 1 ? std::vector{2, 4} : std::vector{2};
}

// With stride 2, and with windows of 5x5 and little padding, the data gradient is spread.
TEST(LanesWinograd, RandomValuesAgreeWithTheReference) {
  for (int round = 0; round < 32; ++round) {
    const std::int64_t groups = round % 8 == 7 ? 2 : 1;
    const std::int64_t window = round % 3 == 0 ? 5 : 3;
    const std::int64_t stride = round % 3 == 1 ? 2 : 1;
    const ConvSpec spec{.batch = random_between(1, 75),
                        .input = {groups * random_between(1, 24), random_between(5, 12), random_between(5, 12)},
                        .output_channels = groups * random_between(1, 24),
                        .window = square(window, stride, random_between(0, window / 2)),
                        .groups = groups,
                        .bias = round % 3 == 0,
                        .input_gradient = round % 5 != 0};
    const std::vector<int> sizes = sizes_for(spec);
    RandomValues(spec).check(round % 2 == 0 ? Element::fp32 : Element::bf16,
                             sizes[static_cast<std::size_t>(round / 2) % sizes.size()]);
    if (HasFatalFailure()) return;
  }
}

// Bands of several rows of tiles in an image, of several blocks of samples, and of all; more channels than a tile of
// products, and than are transformed together.
TEST(LanesWinograd, LargeConvolutionsAgreeWithTheReference) {
  for (const ConvSpec& spec :
       {ConvSpec{.batch = 5, .input = {34, 28, 27}, .output_channels = 37, .window = square(3, 1, 1)},
        ConvSpec{.batch = 81, .input = {37, 4, 4}, .output_channels = 36, .window = square(3, 1, 1)},
        ConvSpec{.batch = 20, .input = {71, 4, 4}, .output_channels = 130, .window = square(3, 1, 1)},
        ConvSpec{.batch = 49, .input = {33, 7, 8}, .output_channels = 24, .window = square(3, 1, 1)},
        ConvSpec{.batch = 35, .input = {34, 28, 27}, .output_channels = 37, .window = square(3, 2, 1)},
        ConvSpec{.batch = 81, .input = {37, 7, 8}, .output_channels = 70, .window = square(3, 2, 1)},
        ConvSpec{.batch = 34, .input = {20, 12, 12}, .output_channels = 18, .window = square(5)},
        ConvSpec{.batch = 3, .input = {20, 19, 19}, .output_channels = 34, .window = square(5, 1, 2)}}) {
    RandomValues values(spec);
    for (const Element element : {Element::fp32, Element::bf16}) {
      for (const int size : sizes_for(spec)) {
        values.check(element, size);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// With ReLU and pooling in the same pass. The inputs are exact, so that ReLU decides as in the reference.
TEST(LanesWinograd, PooledResultsAgreeWithTheReference) {
  for (int round = 0; round < 16; ++round) {
    const std::int64_t window = round % 2 == 0 ? 5 : 3;
    const std::int64_t padding = random_between(0, window / 2);
    const auto even = [&] { return 2 * random_between(2, 5) + window - 1 - 2 * padding; };
    const ConvSpec spec{.batch = random_between(1, 75),
                        .input = {random_between(1, 20), even(), even()},
                        .output_channels = random_between(1, 20),
                        .window = square(window, 1, padding),
                        .relu = true,
                        .average_pool = true};
    const Element element = round % 4 < 2 ? Element::fp32 : Element::bf16;
    for (const int size : sizes_for(spec)) {
      const LanesConvTiles tiles = winograd_tiles(spec, element, size);
      const auto op = make_conv(spec, element, tiles);
      const auto backend = make_cpu_backend(element == Element::bf16 ? Precision::bf16 : Precision::fp32);
      check_op({*backend, *op, spec, Layout::lanes16, Layout::lanes16, random_between(1, spec.batch),
                tolerance(element), describe(spec) + " " + to_text(tiles)});
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace ddp
