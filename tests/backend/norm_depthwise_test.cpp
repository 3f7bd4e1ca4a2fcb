// Depthwise convolutions that are one operator with the batch normalisations around them, and with the 1x1 convolutions in
// front and behind, on the stand-in GPU and on a real one.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend_case.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/joined_case.h"

namespace ddp {
namespace {

using reference::Values;

constexpr Layout kLayout = Layout::nhwc;

struct Joined {
  BatchNormSpec before;
  ConvSpec conv;
  BatchNormSpec after;
  std::optional<ConvSpec> wide = {};    // in front
  std::optional<ConvSpec> narrow = {};  // behind

  std::vector<OpSpec> specs() const {
    std::vector<OpSpec> all = {before, conv, after};
    if (wide) all.insert(all.begin(), *wide);
    if (narrow) all.emplace_back(*narrow);
    return all;
  }
  Shape input() const { return wide ? wide->input : conv.input; }
  Shape output() const { return narrow ? narrow->convolved() : conv.convolved(); }
};

Joined joined(const ConvSpec& conv, Activation before, Activation after) {
  return {{.batch = conv.batch, .shape = conv.input, .epsilon = 1e-3F, .momentum = 0.3F, .activation = before},
          conv,
          {.batch = conv.batch, .shape = conv.convolved(), .activation = after}};
}

ConvSpec depthwise(std::int64_t batch, const Shape& input, const Window2d& window) {
  return {.batch = batch,
          .input = input,
          .output_channels = input.channels,
          .window = window,
          .groups = input.channels,
          .bias = false};
}

// With different paddings on opposite sides, and rows and columns that no window reads.
Joined random_joined() {
  constexpr std::array<Activation, 3> kActivations = {Activation::none, Activation::relu, Activation::relu6};
  const auto activation = [&] { return kActivations.at(static_cast<std::size_t>(random_between(0, 2))); };
  const std::int64_t size = 3 + 2 * random_between(0, 1);
  const auto padding = [&] { return random_between(0, size - 1); };
  const Window2d window{.height = size,
                        .width = size,
                        .stride = random_between(1, 2),
                        .padding = {padding(), padding(), padding(), padding()}};
  const Shape input{8 * random_between(1, 20), random_between(size, 14), random_between(size, 14)};
  return joined(depthwise(random_between(1, 5), input, window), activation(), activation());
}

// The same, with channels that the kernels of the convolution in front support.
Joined random_wide() {
  const Joined narrow = random_joined();
  ConvSpec conv = narrow.conv;
  conv.input.channels = conv.output_channels = conv.groups = 8 * random_between(5, 24);
  Joined j = joined(conv, narrow.before.activation, narrow.after.activation);
  j.wide = ConvSpec{.batch = conv.batch,
                    .input = {8 * random_between(1, 4), conv.input.height, conv.input.width},
                    .output_channels = conv.input.channels,
                    .bias = false};
  return j;
}

ConvSpec behind(const Joined& j, std::int64_t outputs) {
  return {.batch = j.conv.batch, .input = j.after.shape, .output_channels = outputs, .bias = false};
}
// With a convolution behind, and in every other case one in front.
Joined random_narrow() {
  Joined j = random_between(0, 1) == 0 ? random_joined() : random_wide();
  j.narrow = behind(j, 8 * random_between(1, 12));
  return j;
}

// The result of make(), and a number of active samples that are enough for statistics: of few rows with nearly the same value a
// normalisation multiplies rounding errors.
std::pair<Joined, std::int64_t> enough_rows(Joined (*make)()) {
  constexpr std::int64_t kRows = 40;
  for (;;) {
    const Joined j = make();
    const std::int64_t active = random_between(1, j.conv.batch);
    if (active * j.after.shape.height * j.after.shape.width >= kRows) return {j, active};
  }
}

// A channel with a scale far below its offset would have a mean of many deviations, which magnifies what bf16 rounds.
JoinedDevice device_with_large_scales(Backend& backend, const Joined& j, std::int64_t active) {
  JoinedDevice device(backend, j.specs(), kLayout, active);
  DeviceArray<float>& scales = device.parameters[j.wide ? 1 : 0];
  std::vector<float> apart = scales.get();
  for (float& scale : apart) scale += std::copysign(0.5F, scale);
  scales.set(apart);
  return device;
}

// The result of the convolution in front is exact in bf16, so that the activation behind it decides as in double precision.
void make_exact(JoinedDevice& device, std::int64_t active) {
  std::vector<float> weights = device.parameters.front().get();
  for (float& value : weights) value = static_cast<float>(random_between(-1, 1));
  device.parameters.front().set(weights);
  Values x = device.x.get(active);
  for (double& value : x) value = static_cast<double>(random_between(-8, 8)) / 8;
  device.x.set(x, active, 5);
}

// The second normalisation brings no value near a kink of its activation: all of a channel pass, or none.
void keep_from_kinks(JoinedDevice& device, const Joined& j) {
  const std::size_t scale = j.wide ? 4 : 3;
  std::vector<float> scales = device.parameters[scale].get();
  for (float& value : scales) value = std::copysign(0.25F, value) + 0.05F * value;
  device.parameters[scale].set(scales);
  std::vector<float> offsets = device.parameters[scale + 1].get();
  for (float& value : offsets) value = static_cast<float>(6 * random_between(-1, 1)) + 3;
  device.parameters[scale + 1].set(offsets);
}

enum class Kinks { avoided, hit };

// In fp32 the statistics of few values may be rounded to 1e-4 of small variances; in bf16 values are rounded to 2^-9 where
// they are stored: the convolution's result, y, and dx twice. Where rounding decides for up to one value in 100 whether a gradient
// passes, sums may differ by a fifth of the gradient's size; half of it is far less than if all passed.
void check_joined(Backend& backend, const Joined& j, std::int64_t active, Kinks kinks = Kinks::avoided) {
  const bool bf16 = backend.ops().activation_element() == Element::bf16;
  const double tolerance = bf16 ? 2e-2 : 2e-4;
  const double backward_tolerance = kinks == Kinks::hit ? 0.5 : tolerance;
  const std::string what = fmt::format("{} active {}{}", describe(j.specs()), active, bf16 ? " bf16" : "");
  JoinedDevice device = device_with_large_scales(backend, j, active);
  if (j.wide) {
    make_exact(device, active);
  } else {
    avoid_kinks(device, j.before, active);
  }
  if (j.narrow && kinks == Kinks::avoided) keep_from_kinks(device, j);
  JoinedReference expected(j.specs(), active);
  const JoinedValues before = device.values();
  const Values y = expected.forward(before, true);
  device.forward(true);
  expect_near(device.y.get(active), y, tolerance * size_of(y), what + ": y");
  EXPECT_TRUE(device.y.zero_from(active)) << what;
  const JoinedValues moved = device.values();
  for (const std::size_t which : {0, 1}) {
    const Values& statistics = expected.statistics()[which];
    expect_near(moved.statistics[which], statistics, tolerance * size_of(statistics), what + ": running statistics");
  }

  Values dy = random_values(static_cast<std::int64_t>(y.size()));
  if (!j.narrow) dy = expected.without_kinks(dy, bf16 ? 0.1 : 1e-3);
  device.dy.set(dy, active);
  const JoinedReference::Gradients wanted = expected.backward(device.dy.get(active));
  device.backward();
  const JoinedReference::Gradient& dx = wanted.dx;
  expect_near(device.dx.get(active), dx.values, backward_tolerance * dx.size, what + ": dx");
  EXPECT_TRUE(device.dx.zero_from(active)) << what;
  for (std::size_t p = 0; p < device.gradients.size(); ++p) {
    const JoinedReference::Gradient& gradient = wanted.parameters[p];
    expect_near(widened(device.gradients[p].get()), gradient.values, backward_tolerance * gradient.size,
                fmt::format("{}: the gradient of parameter {}", what, p));
  }
  if (j.wide) {
    device.backward(/*add=*/true);
    Values twice = dx.values;
    for (double& value : twice) value *= 2;
    expect_near(device.dx.get(active), twice, backward_tolerance * 2 * dx.size, what + ": dx, added");
  }

  const Values evaluated = expected.forward(moved, false);
  device.forward(false);
  expect_near(device.y.get(active), evaluated, tolerance * size_of(evaluated), what + ": y in evaluation");
  EXPECT_EQ(device.values().statistics, moved.statistics) << what;
}

class NormDepthwise : public OwnBackend, public ::testing::WithParamInterface<Precision> {
 protected:
  void SetUp() override {
    OwnBackend::SetUp();
    if (!IsSkipped()) backend = make_cuda_backend({.precision = GetParam()});
  }

  std::unique_ptr<Backend> backend;
};
using NormDepthwiseJoins = OwnBackend;

TEST_P(NormDepthwise, AgreesWithTheReference) {
  for (int round = 0; round < 16; ++round) {
    const auto [j, active] = enough_rows(random_joined);
    check_joined(*backend, j, active);
    if (HasFatalFailure()) return;
  }
}

// Many chunks of strips, and several groups of columns.
TEST_P(NormDepthwise, LargeOnesAgreeWithTheReference) {
  const Window2d two = square(3, 2, 1);
  for (const Joined& j : {joined(depthwise(4, {136, 33, 31}, square(3, 1, 1)), Activation::relu6, Activation::relu6),
                          joined(depthwise(6, {272, 14, 14}, two), Activation::relu6, Activation::relu6),
                          joined(depthwise(4, {8, 50, 50}, square(5, 1, 2)), Activation::relu, Activation::none),
                          joined(depthwise(3, {144, 27, 29}, square(5, 2, 2)), Activation::relu6, Activation::relu)}) {
    check_joined(*backend, j, j.conv.batch);
    if (HasFatalFailure()) return;
  }
}

TEST_P(NormDepthwise, WithoutSamplesGradientsAreZero) {
  const Joined j = random_joined();
  JoinedDevice device(*backend, j.specs(), kLayout, 0);
  device.dy.set({}, 0);
  const std::vector<float> before = device.statistics.front().get();
  device.forward(true);
  device.backward();
  EXPECT_TRUE(device.y.zero_from(0));
  EXPECT_TRUE(device.dx.zero_from(0));
  EXPECT_EQ(device.statistics.front().get(), before);
  for (const DeviceArray<float>& gradient : device.gradients) {
    for (const float value : gradient.get()) EXPECT_EQ(value, 0.0F);
  }
}

INSTANTIATE_TEST_SUITE_P(In, NormDepthwise, ::testing::Values(Precision::fp32, Precision::bf16),
                         [](const auto& test) { return test.param == Precision::bf16 ? "bf16" : "fp32"; });

TEST_F(NormDepthwiseJoins, WideConvolutionsAgreeWithTheReference) {
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  for (int round = 0; round < 8; ++round) {
    const auto [j, active] = enough_rows(random_wide);
    check_joined(*backend, j, active);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST_F(NormDepthwiseJoins, NarrowConvolutionsAgreeWithTheReference) {
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  for (int round = 0; round < 12; ++round) {
    const auto [j, active] = enough_rows(random_narrow);
    check_joined(*backend, j, active, round % 3 == 2 ? Kinks::hit : Kinks::avoided);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Several slices of channels, and more rows than the blocks of one wave take at once.
TEST_F(NormDepthwiseJoins, LargeNarrowConvolutionsAgreeWithTheReference) {
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  const auto large = [](std::int64_t batch, const Shape& shape, std::int64_t outputs) {
    Joined j = joined(depthwise(batch, shape, square(3, 1, 1)), Activation::relu6, Activation::relu6);
    j.narrow = behind(j, outputs);
    return j;
  };
  for (const Joined& j : {large(3, {576, 7, 7}, 96), large(2, {392, 9, 10}, 40), large(3, {32, 50, 50}, 16)}) {
    check_joined(*backend, j, j.conv.batch - 1);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST_F(NormDepthwiseJoins, OnlyWhatTheKernelsSupport) {
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  const Joined fits = joined(depthwise(2, {16, 9, 9}, square(3, 1, 1)), Activation::relu6, Activation::relu6);
  const auto joins = [&](auto change) {
    Joined j = fits;
    change(j);
    return backend->ops().join(j.specs(), kLayout) != nullptr;
  };
  EXPECT_TRUE(joins([](Joined& /*j*/) {}));
  EXPECT_EQ(backend->ops().join(fits.specs(), Layout::plain), nullptr);
  EXPECT_FALSE(joins([](Joined& j) { j.after.add = true; }));
  EXPECT_FALSE(joins([](Joined& j) { j.after.input_bias = true; }));
  EXPECT_FALSE(joins([](Joined& j) { j.conv.bias = true; }));
  EXPECT_FALSE(joins([](Joined& j) { j.conv.groups = 1; }));
  EXPECT_FALSE(joins([](Joined& j) { j.conv.window.stride = 3; }));
  EXPECT_FALSE(joins([](Joined& j) { j.conv.input_gradient = false; }));
  const auto narrowed = [&](std::int64_t channels, std::int64_t outputs, auto change) {
    Joined j = joined(depthwise(2, {channels, 9, 9}, square(3, 1, 1)), Activation::relu6, Activation::relu6);
    j.narrow = behind(j, outputs);
    change(*j.narrow);
    return backend->ops().join(j.specs(), kLayout) != nullptr;
  };
  EXPECT_TRUE(narrowed(16, 24, [](ConvSpec& /*s*/) {}));
  EXPECT_TRUE(narrowed(576, 96, [](ConvSpec& /*s*/) {}));
  EXPECT_FALSE(narrowed(584, 96, [](ConvSpec& /*s*/) {}));
  EXPECT_FALSE(narrowed(16, 104, [](ConvSpec& /*s*/) {}));
  EXPECT_FALSE(narrowed(16, 12, [](ConvSpec& /*s*/) {}));
  EXPECT_FALSE(narrowed(16, 24, [](ConvSpec& s) { s.bias = true; }));
  EXPECT_FALSE(narrowed(16, 24, [](ConvSpec& s) { s.window = square(3, 1, 1); }));
  const auto widened = [&](std::int64_t channels, std::int64_t outputs, auto change) {
    Joined j = joined(depthwise(2, {outputs, 9, 9}, square(3, 1, 1)), Activation::relu6, Activation::relu6);
    j.wide = ConvSpec{.batch = 2, .input = {channels, 9, 9}, .output_channels = outputs, .bias = false};
    change(*j.wide);
    return backend->ops().join(j.specs(), kLayout) != nullptr;
  };
  EXPECT_TRUE(widened(16, 96, [](ConvSpec& /*s*/) {}));
  EXPECT_FALSE(widened(40, 96, [](ConvSpec& /*s*/) {}));
  EXPECT_FALSE(widened(16, 200, [](ConvSpec& /*s*/) {}));
  EXPECT_FALSE(widened(12, 96, [](ConvSpec& /*s*/) {}));
  EXPECT_FALSE(widened(16, 96, [](ConvSpec& s) { s.bias = true; }));
  EXPECT_FALSE(widened(16, 96, [](ConvSpec& s) { s.input_gradient = false; }));
}

}  // namespace
}  // namespace ddp
