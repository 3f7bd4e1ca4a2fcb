// Tests the convolutions with AMX, by the instructions where the processor has them and by the software model elsewhere, and
// the model itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/amx_emulation.h"
#include "backend/arithmetic.h"
#include "backend/backend.h"
#include "backend/cpu/conv/amx/amx_kernels.h"
#include "backend/cpu/conv/conv.h"
#include "backend/cpu/conv/tiles/conv_kernels.h"
#include "backend/cpu/conv/tiles/shapes.h"
#include "backend/device_values.h"
#include "backend/op_check.h"
#include "base/error.h"

namespace ddp::amx_tests {
namespace {

using lanes::kAmxRows;
using lanes::kAmxTile;

// Results in bf16 are rounded to 8 bits, an error of up to 2^-8 of their size.
constexpr double kRounding = 1e-2;
// Products for tf32 leave out what is smaller than 2^-16 of them: with inputs of one sign in the worst case 1.5e-5 of the sum.
constexpr double kSplit = 2e-5;
double tolerance_of(Element element) { return element == Element::bf16 ? kRounding : kSplit; }
Precision precision_of(Element element) { return element == Element::bf16 ? Precision::bf16 : Precision::tf32; }

template <class Tile>
Tile pick(const std::vector<Tile>& all) {
  return all[static_cast<std::size_t>(random_between(0, static_cast<std::int64_t>(all.size()) - 1))];
}

LanesConvTiles amx_tiles(const ConvSpec& spec) {
  LanesConvTiles tiles;
  tiles.forward = pick(amx_forward_tiles(spec));
  if (spec.input_gradient) tiles.data = pick(amx_data_tiles(spec));
  tiles.weights = pick(amx_weights_tiles(spec));
  return tiles;
}

std::unique_ptr<Op> make_amx(const ConvSpec& spec, const LanesConvTiles& tiles, Element element) {
  return element == Element::bf16 ? make_lanes_bf16_conv(spec, tiles) : make_lanes_conv(spec, tiles);
}

// With inputs that are exact in bf16, so that ReLU decides as in double precision.
void check_amx(const ConvSpec& spec, const LanesConvTiles& tiles, std::int64_t active, Element element) {
  const auto backend = make_cpu_backend(precision_of(element));
  const auto op = make_amx(spec, tiles, element);
  check_op({*backend, *op, spec, Layout::lanes16, Layout::lanes16, active, tolerance_of(element),
            describe(spec) + " active " + std::to_string(active) + " " + to_text(tiles)});
}

// With any floats, which bf16 rounds and tf32 takes as they are.
void check_random(const ConvSpec& spec, Element element) {
  const LanesConvTiles tiles = amx_tiles(spec);
  const auto backend = make_cpu_backend(precision_of(element));
  const auto op = make_amx(spec, tiles, element);
  const reference::Inputs in{
      .inputs = {random_values(spec.batch * spec.input.elements())},
      .parameters = {random_values(spec.weights()), random_values(spec.bias ? spec.output_channels : 0), {}}};
  const reference::Values dy = random_values(spec.batch * spec.output().elements());
  const Expected expected{reference::forward(spec, in), reference::backward(spec, in, dy),
                          reference::forward(spec, in).y};
  check_op({*backend, *op, spec, Layout::lanes16, Layout::lanes16, spec.batch, tolerance_of(element),
            describe(spec) + " of random values " + to_text(tiles)},
           in, dy, expected);
}

TEST(LanesAmx, EveryTileAgreesWithTheReference) {
  for (int round = 0; round < 40; ++round) {
    ConvSpec spec = random_conv(round % 3 + 1, round % 2 == 0 ? 1 : 5);
    if (spec.window.stride != 1) spec.average_pool = false;
    check_amx(spec, amx_tiles(spec), random_between(0, spec.batch), round / 2 % 2 == 0 ? Element::bf16 : Element::fp32);
    if (HasFatalFailure()) return;
  }
}

TEST(LanesAmx, RandomValuesAgreeWithTheReference) {
  for (int round = 0; round < 16; ++round) {
    ConvSpec spec = random_conv(2, round % 3 == 0 ? 3 : 1);
    spec.relu = spec.average_pool = false;
    check_random(spec, round % 2 == 0 ? Element::bf16 : Element::fp32);
    if (HasFatalFailure()) return;
  }
}

// More channels than two tiles have rows or pairs, more than one step of a window's row, several bands, several pieces, an odd
// number of blocks, phases without taps, pixels that are skipped.
TEST(LanesAmx, LargeConvolutionsAgreeWithTheReference) {
  for (const ConvSpec& spec :
       {ConvSpec{.batch = 33, .input = {70, 4, 4}, .output_channels = 50, .window = square(3, 1, 1)},
        ConvSpec{.batch = 20, .input = {37, 15, 15}, .output_channels = 21, .window = square(3, 2, 1)},
        ConvSpec{.batch = 17, .input = {16, 40, 34}, .output_channels = 3, .window = square(2), .relu = true},
        ConvSpec{.batch = 18,
        .input = {10, 12, 12},
        .output_channels = 50,
        .window = square(5),
        .relu = true,
        .average_pool = true},
        ConvSpec{.batch = 19, .input = {33, 9, 8}, .output_channels = 40, .window = square(1, 2), .bias = false},
        ConvSpec{.batch = 20, .input = {3, 24, 24}, .output_channels = 17, .window = square(7, 2, 3)},
        // Weights rounded row by row; those of several output channels together, or not; more than fit a cache.
        ConvSpec{.batch = 17, .input = {64, 5, 6}, .output_channels = 33, .window = square(3, 1, 1)},
        ConvSpec{.batch = 17, .input = {32, 9, 7}, .output_channels = 64, .window = square(3, 2, 1)},
        ConvSpec{.batch = 5, .input = {32, 8, 8}, .output_channels = 32, .window = square(7, 1, 3)},
        ConvSpec{.batch = 18, .input = {64, 4, 4}, .output_channels = 96, .groups = 2, .bias = false},
        ConvSpec{.batch = 41, .input = {256, 3, 3}, .output_channels = 176, .window = square(3, 1, 1)},
        // Rows of the window together.
        ConvSpec{.batch = 40,
        .input = {1, 32, 32},
        .output_channels = 6,
        .window = square(5),
        .relu = true,
        .average_pool = true},
        ConvSpec{.batch = 21, .input = {3, 11, 12}, .output_channels = 20, .window = square(3, 1, 1)},
        ConvSpec{.batch = 21, .input = {2, 15, 13}, .output_channels = 17, .window = square(5, 2, 2)},
        with_long_rows({.batch = 18, .input = {19, 28, 28}, .output_channels = 40, .bias = false})}) {
    for (const Element element : {Element::bf16, Element::fp32}) {
      check_amx(spec, amx_tiles(spec), spec.batch - 1, element);
      if (HasFatalFailure()) return;
    }
  }
}

// Kernels that load each column of the image once for the three columns of a window.
TEST(LanesAmx, WindowsOfThreeColumnsAgreeWithTheReference) {
  for (std::int64_t width = 1; width <= 8; ++width) {
    const ConvSpec spec{.batch = random_between(1, 70),
                        .input = {16 * random_between(1, 3), random_between(1, 9), width},
                        .output_channels = random_between(1, 40),
                        .window = square(3, 1, 1)};
    for (const Element element : {Element::bf16, Element::fp32}) {
      LanesConvTiles tiles = amx_tiles(spec);
      tiles.weights = amx_weights_tiles(spec).front();
      ASSERT_EQ(lanes::amx_kernels().gradient[tiles.weights.index].window, 3);
      check_amx(spec, tiles, spec.batch, element);
      if (HasFatalFailure()) return;
    }
  }
}

// As convolutions of single pixels; by name where AMX may be chosen.
TEST(LanesAmx, LinearLayersAgreeWithTheReference) {
  for (int round = 0; round < 16; ++round) {
    const Element element = round % 2 == 0 ? Element::bf16 : Element::fp32;
    const auto backend = make_cpu_backend(precision_of(element));
    const LinearSpec spec{.batch = random_between(1, 70),
                          .inputs = random_between(1, 90),
                          .outputs = random_between(1, 70),
                          .bias = round % 3 != 0,
                          .relu = round % 3 == 1,
                          .input_gradient = round % 5 != 4};
    const ConvSpec conv{.batch = spec.batch,
                        .input = spec.input_shape(),
                        .output_channels = spec.outputs,
                        .bias = spec.bias,
                        .relu = spec.relu,
                        .input_gradient = spec.input_gradient};
    const LanesConvTiles tiles = amx_tiles(conv);
    const std::string text = element == Element::bf16 ? bf16_text(tiles) : to_text(tiles);
    const auto op = lanes::uses_amx() ? backend->ops().make_op(spec, Layout::lanes16, Layout::lanes16, text)
                                      : make_amx(conv, tiles, element);
    check_op({*backend, *op, spec, Layout::lanes16, Layout::lanes16, random_between(0, spec.batch),
              tolerance_of(element), describe(conv) + " " + text});
    if (HasFatalFailure()) return;
  }
}

template <class Tile>
bool has_amx(const std::vector<Tile>& tiles) {
  return std::any_of(tiles.begin(), tiles.end(), [](const Tile& tile) { return is_amx(tile); });
}

// Only timing chooses AMX, so that --deterministic computes the same bits everywhere.
TEST(LanesAmx, IsNeitherFixedNorForFp32) {
  for (int round = 0; round < 20; ++round) {
    ConvSpec spec = random_conv(2, 2);
    if (spec.window.stride != 1) spec.average_pool = false;
    spec.input_gradient = true;
    for (const bool with_amx : {false, true}) {
      EXPECT_EQ(has_amx(lanes_forward_candidates(spec, with_amx)), with_amx);
      EXPECT_EQ(has_amx(lanes_forward_shortlist(spec, with_amx)), with_amx);
      EXPECT_EQ(has_amx(lanes_data_candidates(spec, with_amx)), with_amx);
      EXPECT_EQ(has_amx(lanes_data_shortlist(spec, with_amx)), with_amx);
      EXPECT_EQ(has_amx(lanes_weights_candidates(spec, with_amx)), with_amx);
      EXPECT_EQ(has_amx(lanes_weights_shortlist(spec, Element::bf16, with_amx)), with_amx);
    }
    for (const Element element : {Element::fp32, Element::bf16}) {
      const LanesConvTiles fixed = lanes_fixed_tiles(spec, element);
      EXPECT_FALSE(is_amx(fixed.forward) || is_amx(fixed.data) || is_amx(fixed.weights)) << describe(spec);
    }
    const LanesConvTiles tiles = amx_tiles(spec);
    for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
      const auto backend = make_cpu_backend(precision);
      const auto choice = backend->chooser().choose(spec, Layout::lanes16, Layout::lanes16, ChoiceMode::fixed);
      EXPECT_EQ(choice.kernels.find("amx"), std::string::npos) << choice.kernels;
      const std::string text = precision == Precision::bf16 ? bf16_text(tiles) : to_text(tiles);
      const auto make = [&] { return backend->ops().make_op(spec, Layout::lanes16, Layout::lanes16, text); };
      if (precision != Precision::fp32 && lanes::uses_amx()) {
        EXPECT_NE(make(), nullptr) << text;
      } else {
        EXPECT_THROW(make(), Error) << text;
      }
    }
  }
}

TEST(LanesAmx, IsNamedWhereItIsUsed) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    const auto backend = make_cpu_backend(precision);
    const bool named = backend->ops().traits().description.find("AMX") != std::string::npos;
    EXPECT_EQ(named, precision != Precision::fp32 && lanes::uses_amx()) << backend->ops().traits().description;
    EXPECT_EQ(backend->ops().traits().arithmetic.find("AMX") != std::string::npos, named);
  }
}

std::vector<std::uint16_t> random_bf16(std::int64_t count, int exponent = 0) {
  std::vector<std::uint16_t> values;
  for (const float value : random_floats(count)) values.push_back(bf16_bits(std::ldexp(value, exponent)));
  return values;
}

// Tiles of floats or of pairs of bf16 numbers, aligned as kernels need them.
class Tiles {
 public:
  explicit Tiles(std::int64_t count) : tiles_(static_cast<std::size_t>(count)) {}
  Tiles(std::int64_t count, const std::vector<std::uint16_t>& pairs) : Tiles(count) {
    std::memcpy(data(), pairs.data(), 2 * pairs.size());
  }
  float* data() { return tiles_.front().values; }
  const float* data() const { return tiles_.front().values; }

 private:
  struct alignas(64) Tile {
    float values[kAmxTile] = {};
  };
  std::vector<Tile> tiles_;
};

// Rows and columns of results of the forward kernels below.
constexpr int kPositions = 6;

// sums (+)= products of `steps` tiles, by the smallest kernel for weight gradients.
std::vector<float> multiply_tiles(const lanes::AmxKernels& kernels, int steps, const std::vector<std::uint16_t>& a,
                                  const std::vector<std::uint16_t>& b, const std::vector<float>* start) {
  const Tiles image(steps, a);
  const Tiles gradient(steps, b);
  Tiles sums(1);
  if (start != nullptr) std::copy(start->begin(), start->end(), sums.data());
  const lanes::AmxGradientTile& tile = kernels.gradient[kernels.gradient_tiles - 1];
  EXPECT_EQ(tile.taps * tile.channels, 1);
  tile.kernel({.taps = kAmxRows,
               .pairs = 1,
               .out_h = 1,
               .out_w = steps,
               .image = image.data(),
               .image_block = 0,
               .row_step = 0,
               .column_step = kAmxTile,
               .gradient = gradient.data(),
               .gradient_block = 0,
               .gradient_tiles = 0,
               .sums = sums.data(),
               .accumulate = start != nullptr},
              0, 0);
  return {sums.data(), sums.data() + kAmxTile};
}

// TDPBF16PS as the manual defines it, one sum at a time, with multiply-adds in fp32.
void add_documented(const std::uint16_t* a, const std::uint16_t* b, std::vector<float>& sums) {
  for (int m = 0; m < kAmxRows; ++m) {
    for (int n = 0; n < kAmxRows; ++n) {
      float even = 0;
      float odd = 0;
      for (int k = 0; k < kAmxRows; ++k) {
        const std::uint16_t* x = a + 2 * (m * kAmxRows + k);
        const std::uint16_t* y = b + 2 * (k * kAmxRows + n);
        even = std::fma(float_of_bf16(x[0]), float_of_bf16(y[0]), even);
        odd = std::fma(float_of_bf16(x[1]), float_of_bf16(y[1]), odd);
      }
      float& sum = sums[static_cast<std::size_t>(m) * kAmxRows + static_cast<std::size_t>(n)];
      sum = sum + (even + odd);
    }
  }
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), 4 * bits.size());
  return bits;
}

// Values of all sizes, also products and sums that vanish, and infinite ones.
TEST(LanesAmx, TheModelIsTheDocumentedInstruction) {
  const auto backend = make_cpu_backend();  // denormal numbers are zero
  constexpr int kSteps = 3;
  for (const int exponent : {0, 20, 63, -60, -62, -63, -64}) {
    const std::vector<std::uint16_t> a = random_bf16(2 * kSteps * kAmxTile, exponent);
    const std::vector<std::uint16_t> b = random_bf16(2 * kSteps * kAmxTile, exponent);
    std::vector<float> start = random_floats(kAmxTile);
    for (float& value : start) value = std::ldexp(value, 2 * exponent);
    for (const std::vector<float>* begin : {static_cast<const std::vector<float>*>(nullptr), &std::as_const(start)}) {
      std::vector<float> wanted = begin == nullptr ? std::vector<float>(kAmxTile) : *begin;
      for (int step = 0; step < kSteps; ++step) {
        add_documented(a.data() + 2 * step * kAmxTile, b.data() + 2 * step * kAmxTile, wanted);
      }
      EXPECT_EQ(bits_of(multiply_tiles(lanes::amx_model::table(), kSteps, a, b, begin)), bits_of(wanted)) << exponent;
    }
  }
}

// The results and masks of a forward kernel: two tiles of pairs a position, windows of 2x1, up to 48 channels, padding above and
// below.
template <class Value>
std::vector<Value> results_of(void (*kernel)(const lanes::AmxForward&), const Tiles& image, const Tiles& weights,
                              const std::vector<float>& bias) {
  const auto channels = static_cast<int>(bias.size());
  std::vector<Value> y(16 * bias.size() * kPositions * kPositions);
  std::vector<std::uint16_t> mask(y.size() / 4);
  kernel({.kernel_h = 2,
          .steps = 2,
          .image = image.data(),
          .image_row = 2 * kPositions * kAmxTile,
          .row_step = 2 * kPositions * kAmxTile,
          .column_step = 2 * kAmxTile,
          .weights = weights.data(),
          .bias = bias.data(),
          .out_channels = channels,
          .out_h = kPositions,
          .out_w = kPositions,
          .first_row = 1,
          .last_row = kPositions,
          .stride = 1,
          .first_value = kAmxTile,
          .last_value = 2 * (kPositions - 1) * kAmxTile,
          .out_plane = kPositions * kPositions,
          .out_row = kPositions,
          .out_step = 1,
          .y = y.data(),
          .mask = mask.data()});
  for (const std::uint16_t bits : mask) y.push_back(static_cast<Value>(bits));
  return y;
}

// The sums of a kernel for weight gradients over two pairs of blocks of 2x3 results.
std::vector<float> sums_of(const lanes::AmxGradientTile& tile, int taps, const Tiles& image, const Tiles& gradient,
                           const Tiles& start) {
  Tiles sums = start;
  const std::int64_t row = 8 * kAmxTile;
  tile.kernel({.taps = taps,
               .pairs = 2,
               .out_h = 2,
               .out_w = 3,
               .image = image.data(),
               .image_block = 2 * row,
               .row_step = row,
               .column_step = kAmxTile / 2,
               .gradient = gradient.data(),
               .gradient_block = 4 * 6 * kAmxTile,
               .gradient_tiles = 6 * kAmxTile,
               .sums = sums.data(),
               .accumulate = true},
              0, 0);
  return {sums.data(), sums.data() + 16 * kAmxTile};
}

// Everything that copies and splits values, one after the other.
std::vector<float> copies_of(const lanes::AmxKernels& kernels, const std::vector<std::uint16_t>& numbers,
                             const std::vector<float>& floats) {
  constexpr int kCount = 3;
  std::vector<float> to(21 * kAmxTile);
  const auto at = [&](std::int64_t tile) { return to.data() + tile * kAmxTile; };
  kernels.pair_positions(numbers.data(), numbers.data() + 100, kCount, 32, at(0), 48);
  kernels.pair_positions(numbers.data(), nullptr, kCount, 16, at(0) + 16, 48);
  kernels.split_positions(floats.data(), floats.data() + 100, kCount, 32, at(1), 48, 16);
  kernels.split_positions(floats.data(), nullptr, 1, 16, at(2), 48, 16);
  kernels.transpose_gradient(numbers.data(), 50, 13, kCount, at(3), 140);
  kernels.split_gradient(floats.data(), 50, 16, kCount, at(5), 140, at(7));
  kernels.join_samples(numbers.data(), numbers.data() + 100, kCount, 32, at(10), 48);
  kernels.join_samples(numbers.data(), nullptr, kCount, 16, at(10) + 16, 48);
  kernels.split_samples(floats.data(), floats.data() + 100, kCount, 32, at(12), 48, at(13));
  kernels.split_samples(floats.data(), nullptr, kCount, 16, at(12) + 16, 48, at(13) + 16);
  kernels.round_pairs(floats.data(), floats.data() + 16, 0, at(15));
  kernels.round_pairs(floats.data() + 32, floats.data() + 48, 0x5A0F, at(15) + 16);
  kernels.pair_positions(nullptr, numbers.data(), kCount, 16, at(16), 16);
  kernels.split_samples(nullptr, nullptr, kCount, 16, at(17), 16, at(18));
  kernels.round_rows(floats.data(), floats.data() + 27, 54, 13, false, at(19));
  kernels.round_rows(floats.data() + 13, floats.data() + 40, 54, 9, true, at(20));
  return to;
}

// All kernels; without AMX by the emulation of its instructions, so that the code is tested as it was compiled.
TEST(LanesAmx, TheInstructionsHaveTheBitsOfTheModel) {
  if (__builtin_cpu_supports("avx512bf16") == 0) GTEST_SKIP() << "this processor has no AVX-512 BF16, as AMX needs it";
  const auto backend = make_cpu_backend();  // denormal numbers are zero
  const lanes::AmxKernels& real = lanes::amx::table();
  const lanes::AmxKernels& model = lanes::amx_model::table();
  std::optional<AmxEmulation> emulation;
  if (!lanes::has_amx()) emulation.emplace();
  ASSERT_EQ(real.forward_tiles, model.forward_tiles);
  ASSERT_EQ(real.gradient_tiles, model.gradient_tiles);
  for (const int exponent : {0, -63}) {
    const Tiles image(2 * (kPositions + 1) * kPositions,
                      random_bf16(4 * (kPositions + 1) * kPositions * kAmxTile, exponent));
    const Tiles weights(24, random_bf16(2 * 24 * kAmxTile, exponent));
    const Tiles start(16, random_bf16(2 * 16 * kAmxTile, 2 * exponent));
    std::vector<float> bias = random_floats(40);
    for (float& value : bias) value = std::ldexp(value, 2 * exponent);
    for (int i = 0; i < real.forward_tiles; ++i) {
      for (const int last : {0, 1, 2}) {
        const lanes::AmxForwardTile& tile = real.forward[i];
        const lanes::AmxForwardTile& wanted = model.forward[i];
        if (tile.kernel[last] == nullptr) continue;
        EXPECT_EQ(results_of<std::uint16_t>(tile.kernel[last], image, weights, bias),
                  results_of<std::uint16_t>(wanted.kernel[last], image, weights, bias))
            << exponent << " tile " << i << " epilogue " << last;
        EXPECT_EQ(bits_of(results_of<float>(tile.fp32[last], image, weights, bias)),
                  bits_of(results_of<float>(wanted.fp32[last], image, weights, bias)))
            << exponent << " tile " << i << " epilogue " << last << " in fp32";
      }
    }
    const Tiles gradient(48, random_bf16(2 * 48 * kAmxTile, exponent));
    for (int i = 0; i < real.gradient_tiles; ++i) {
      // Taps of one tile too few, of some tiles, or of all.
      for (const int taps : {5, 21, 48}) {
        EXPECT_EQ(bits_of(sums_of(real.gradient[i], taps, image, gradient, start)),
                  bits_of(sums_of(model.gradient[i], taps, image, gradient, start)))
            << exponent << " gradient " << i << " of " << taps << " taps";
      }
    }
    const std::vector<std::uint16_t> numbers = random_bf16(1000, exponent);
    std::vector<float> floats = random_floats(1000);
    for (float& value : floats) value = std::ldexp(value, 2 * exponent);
    EXPECT_EQ(bits_of(copies_of(real, numbers, floats)), bits_of(copies_of(model, numbers, floats))) << exponent;
  }
  if (emulation) {
    EXPECT_GT(AmxEmulation::executed(), 1000);
  }
}

// The weight gradient in fp32.
std::vector<float> weight_gradient(const ConvSpec& spec, const LanesConvTiles& tiles, const std::vector<Bf16>& x,
                                   const std::vector<Bf16>& dy) {
  const auto op = make_lanes_bf16_conv(spec, tiles);
  const Memory workspace = allocate_on_host(op->traits().workspace_bytes, "the test's values");
  const std::vector<float> weights(static_cast<std::size_t>(spec.weights()));
  std::vector<float> dw(weights.size());
  op->backward({.inputs = {x.data()},
                .dy = dy.data(),
                .parameters = {weights.data()},
                .parameter_gradients = {dw.data()},
                .workspace = workspace.data(),
                .active = spec.batch});
  return dw;
}

// Sums of the same products in another order: other bits, no other values. 1e-5 of the root of the number of products is
// about a hundred roundings of fp32.
TEST(LanesAmx, SumsDifferFromThoseOfPairsByRounding) {
  const auto backend = make_cpu_backend(Precision::bf16);
  const ConvSpec spec{.batch = 32,
                      .input = {16, 9, 9},
                      .output_channels = 16,
                      .window = square(3, 1, 1),
                      .bias = false,
                      .input_gradient = false};
  const auto random = [](std::int64_t count) {
    std::vector<Bf16> values;
    for (const std::uint16_t bits : random_bf16(count)) values.push_back({bits});
    return values;
  };
  const std::vector<Bf16> x = random(spec.batch * spec.input.elements());
  const std::vector<Bf16> dy = random(spec.batch * spec.output().elements());
  LanesConvTiles tiles = lanes_fixed_tiles(spec, Element::bf16);
  const std::vector<float> pairs = weight_gradient(spec, tiles, x, dy);
  tiles.weights = amx_weights_tiles(spec).front();
  const std::vector<float> amx = weight_gradient(spec, tiles, x, dy);
  const double products = static_cast<double>(spec.batch * spec.output().height * spec.output().width);
  std::size_t differences = 0;
  for (std::size_t i = 0; i < amx.size(); ++i) {
    ASSERT_NEAR(amx[i], pairs[i], 1e-5 * std::sqrt(products)) << i;
    if (amx[i] != pairs[i]) ++differences;
  }
  EXPECT_GT(differences, amx.size() / 10);
  RecordProperty("different_sums", std::to_string(differences) + " of " + std::to_string(amx.size()));
}

}  // namespace
}  // namespace ddp::amx_tests
