// Tests the CPU backend's kernels for bf16 individually, and that the software model of the instructions has their bits.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/backend.h"
#include "backend/cpu/conv/conv.h"
#include "backend/cpu/conv/depthwise/depthwise.h"
#include "backend/cpu/conv/tiles/conv_kernels.h"
#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/cpu/linear/linear.h"
#include "backend/cpu/onednn/onednn.h"
#include "backend/op_check.h"

namespace ddp {

namespace lanes::avx512bf16 {
const ConvKernels& pair_kernels();
const GradientKernels& gradient_kernels();
}  // namespace lanes::avx512bf16
namespace lanes::avx2 {
const ConvKernels& pair_kernels();
const GradientKernels& gradient_kernels();
}  // namespace lanes::avx2

namespace {

// The inputs are exact in bf16; results are rounded to 8 bits, an error of up to 2^-8 of their size.
constexpr double kRounding = 1e-2;

void check_bf16(Op& op, const OpSpec& spec, std::int64_t active, const std::string& what,
                Layout layout = Layout::lanes16) {
  const auto backend = make_cpu_backend(Precision::bf16);
  check_op({*backend, op, spec, layout, layout, active, kRounding, what});
}

template <class Values>
auto pick(const Values& all) {
  return all[static_cast<std::size_t>(random_between(0, static_cast<std::int64_t>(all.size()) - 1))];
}

TEST(LanesBf16, EveryConvolutionTileAgreesWithTheReference) {
  for (int round = 0; round < 80; ++round) {
    ConvSpec spec = random_conv(round % 3 + 1, round % 2 == 0 ? 1 : 5);
    if (spec.window.stride != 1) spec.average_pool = false;
    LanesConvTiles tiles;
    tiles.forward = pick(lanes_forward_candidates(spec));
    if (spec.input_gradient) tiles.data = pick(lanes_data_candidates(spec));
    tiles.weights = pick(lanes_weights_candidates(spec));
    const auto op = make_lanes_bf16_conv(spec, tiles);
    const std::int64_t active = random_between(0, spec.batch);
    check_bf16(*op, spec, active, describe(spec) + " active " + std::to_string(active) + " " + bf16_text(tiles));
    if (HasFatalFailure()) return;
    EXPECT_EQ(bf16_text(bf16_tiles_from_text(spec, bf16_text(tiles))), bf16_text(tiles));
  }
}

// More input channels than the widest outer tile has lanes, several pieces and bands.
TEST(LanesBf16, LargeConvolutionsAgreeWithTheReference) {
  for (const ConvSpec& spec :
       {ConvSpec{.batch = 33, .input = {70, 7, 7}, .output_channels = 26, .window = square(3, 1, 1)},
        ConvSpec{.batch = 20, .input = {37, 15, 15}, .output_channels = 21, .window = square(3, 2, 1)},
        ConvSpec{.batch = 17, .input = {8, 60, 50}, .output_channels = 3, .window = square(3), .relu = true},
        with_long_rows({.batch = 18, .input = {19, 28, 28}, .output_channels = 40, .bias = false})}) {
    const std::vector<WeightTile> candidates = lanes_weights_candidates(spec);
    // Also one of the last, with Winograd's algorithm if there is one.
    for (const WeightTile& weights : {pick(candidates), *(candidates.end() - pick(std::vector{1, 2}))}) {
      LanesConvTiles tiles = lanes_fixed_tiles(spec, Element::bf16);
      tiles.weights = weights;
      const auto op = make_lanes_bf16_conv(spec, tiles);
      check_bf16(*op, spec, spec.batch - 1, describe(spec) + " " + bf16_text(tiles));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(LanesBf16, ImagesOfSinglePixelsGetLongRows) {
  const auto sizes = [](const ConvSpec& spec) {
    const Shape in = with_long_rows(spec).input;
    return std::vector<std::int64_t>{in.height, in.width};
  };
  ConvSpec spec{.batch = 2, .input = {3, 7, 7}, .output_channels = 4};
  EXPECT_EQ(sizes(spec), (std::vector<std::int64_t>{1, 49}));
  spec.input = {3, 112, 112};
  EXPECT_EQ(sizes(spec), (std::vector<std::int64_t>{49, 256}));
  spec.window.stride = 2;
  EXPECT_EQ(sizes(spec), (std::vector<std::int64_t>{112, 112}));
  spec.window = square(3, 1, 1);
  EXPECT_EQ(sizes(spec), (std::vector<std::int64_t>{112, 112}));
}

TEST(LanesBf16, DepthwiseConvolutionsAgreeWithTheReference) {
  for (int round = 0; round < 60; ++round) {
    const std::int64_t channels = random_between(2, 5);
    const std::int64_t size = round % 2 == 0 ? 3 : random_between(1, 7);
    ConvSpec spec{.batch = random_between(1, 40),
                  .input = {channels, random_between(size, 40), random_between(size, 40)},
                  .output_channels = channels,
                  .window = square(size, random_between(1, 3), random_between(0, size / 2)),
                  .groups = channels,
                  .bias = round % 3 == 0,
                  .input_gradient = round % 5 != 0};
    const auto op = make_lanes_bf16_depthwise(spec);
    const std::int64_t active = random_between(0, spec.batch);
    check_bf16(*op, spec, active, describe(spec) + " active " + std::to_string(active));
    if (HasFatalFailure()) return;
  }
}

// Few and many blocks of samples, and so many inputs and outputs that their images are made in several pieces.
TEST(LanesBf16, LinearLayersAgreeWithTheReference) {
  for (int round = 0; round < 42; ++round) {
    const std::int64_t most = round < 40 ? 90 : 20'000;
    const LinearSpec spec{.batch = random_between(1, round % 2 == 0 ? 40 : 300),
                          .inputs = round == 41 ? most : random_between(1, 90),
                          .outputs = round == 40 ? most : random_between(1, 70),
                          .bias = round % 3 != 0,
                          .relu = round % 3 == 1,
                          .input_gradient = round % 5 != 4};
    const auto op =
        make_cpu_backend(Precision::bf16)->ops().make_op(spec, Layout::lanes16, Layout::lanes16, kLanesBf16Linear);
    const std::int64_t active = random_between(0, spec.batch);
    check_bf16(*op, spec, active,
               fmt::format("{} -> {}, batch {}, active {}", spec.inputs, spec.outputs, spec.batch, active));
    if (HasFatalFailure()) return;
  }
}

TEST(OneDnnBf16, EveryFormatAgreesWithTheReference) {
  if (__builtin_cpu_supports("avx512bf16") == 0) GTEST_SKIP() << "this processor has no instructions for bf16";
  int built = 0;
  for (int round = 0; built < 60; ++round) {
    ASSERT_LT(round, 1000) << "hardly any convolution has an operator";
    ConvSpec spec = random_conv(2, round % 2 == 0 ? 1 : 5);
    spec.relu = spec.average_pool = false;
    for (const char* name : {"nhwc", "any"}) {
      const OneDnnConvFormats formats{name, name, name};
      const auto op = make_onednn_conv(spec, formats, Element::bf16);
      if (op == nullptr) continue;
      ++built;
      const std::int64_t active = random_between(1, spec.batch);
      const std::string text = to_text(formats, Element::bf16);
      check_bf16(*op, spec, active, describe(spec) + " active " + std::to_string(active) + " " + text, Layout::nhwc);
      if (HasFatalFailure()) return;
      EXPECT_TRUE(is_onednn_bf16_text(text));
      EXPECT_EQ(onednn_formats_from_text(text).data, name);
    }
  }
}

std::vector<std::uint16_t> random_bf16(std::size_t count) {
  std::vector<std::uint16_t> values;
  for (const float value : random_floats(static_cast<std::int64_t>(count))) values.push_back(bf16_bits(value));
  return values;
}

// Floats aligned as kernels need them.
struct Aligned {
  explicit Aligned(std::size_t floats) : storage(floats + 16) {
    auto* begin = storage.data();
    while (reinterpret_cast<std::uintptr_t>(begin) % 64 != 0) ++begin;
    data = begin;
  }
  std::vector<float> storage;
  float* data;
};

// By the instructions and by the model, with the bits compared. Values of all sizes, also products that vanish.
TEST(LanesBf16, TheSoftwareModelHasTheBitsOfTheInstructions) {
  if (__builtin_cpu_supports("avx512bf16") == 0) GTEST_SKIP() << "this processor has no instructions for bf16";
  const auto backend = make_cpu_backend();  // denormal numbers are zero
  const lanes::GradientKernels& real = lanes::avx512bf16::gradient_kernels();
  const lanes::GradientKernels& model = lanes::avx2::gradient_kernels();
  const lanes::ConvShape shape{.in_channels = 5,
                               .in_h = 9,
                               .in_w = 7,
                               .border_h = 0,
                               .border_w = 1,
                               .pad_top = 0,
                               .pad_left = 1,
                               .out_channels = 6,
                               .out_h = 7,
                               .out_w = 7,
                               .kernel_h = 3,
                               .kernel_w = 3,
                               .stride = 1,
                               .out_plane = 49,
                               .out_row = 7,
                               .out_step = 1};
  const std::size_t image = 5 * static_cast<std::size_t>(shape.source_plane());
  const std::size_t results = 16 * 6 * 49;
  for (const int exponent : {0, -60, -63}) {
    const auto scaled = [&](std::vector<std::uint16_t> values) {
      for (std::uint16_t& value : values) value = bf16_bits(std::ldexp(float_of_bf16(value), exponent));
      return values;
    };
    Aligned x(image);
    Aligned w(5 * 9 * 8);
    const std::vector<std::uint16_t> pairs = scaled(random_bf16(2 * image));
    std::memcpy(x.data, pairs.data(), 4 * image);
    const std::vector<std::uint16_t> weights = scaled(random_bf16(2 * 5 * 9 * 8));
    std::memcpy(w.data, weights.data(), 2 * weights.size());
    // Tiles 0 to 2 are the same in all tables.
    for (const int tile : {0, 1, 2}) {
      const auto run = [&](const lanes::ConvKernels& kernels) {
        std::vector<std::uint16_t> y(results);
        kernels.forward[tile].direct[0](shape, x.data, w.data, nullptr, lanes::least_result(false), y.data(), nullptr,
                                        0, 7);
        return y;
      };
      EXPECT_EQ(run(lanes::avx512bf16::pair_kernels()), run(lanes::avx2::pair_kernels()))
          << exponent << " forward " << tile;
    }
    const std::vector<std::uint16_t> dy = scaled(random_bf16(results));
    const auto weights_of = [&](const lanes::GradientKernels& kernels, int tile) {
      std::vector<float> dw(6 * 5 * 9);
      const lanes::WeightsTile& t = kernels.weights[tile];
      for (int channel = 0; channel * t.channels < 6; ++channel) {
        for (int tap = 0; tap * t.taps < 45; ++tap) {
          t.pairs({shape, pairs.data(), 0, dy.data(), 0, 49, 1, dw.data(), false}, channel, tap);
        }
      }
      return dw;
    };
    EXPECT_EQ(weights_of(real, 0), weights_of(model, 0)) << exponent;
    EXPECT_EQ(weights_of(real, 1), weights_of(model, 1)) << exponent;
    // Outer tiles of all sizes compute the same.
    const std::int64_t width = 128;
    Aligned outer(static_cast<std::size_t>(shape.source_plane() / 2 * width));
    const std::vector<std::uint16_t> samples =
        scaled(random_bf16(static_cast<std::size_t>(shape.source_plane() * width)));
    std::memcpy(outer.data, samples.data(), 2 * samples.size());
    const auto outer_of = [&](const lanes::GradientKernels& kernels) {
      std::vector<float> dw(6 * 5 * 9);
      const lanes::OuterTile& t = kernels.outer[0];
      for (int row = 0; row * t.rows < 6; ++row) {
        t.pairs({shape, outer.data, 0, width, dy.data(), 0, 49, 1, dw.data(), false}, row, 0);
      }
      return dw;
    };
    EXPECT_EQ(outer_of(real), outer_of(model)) << exponent << " outer";
  }
}

}  // namespace
}  // namespace ddp
