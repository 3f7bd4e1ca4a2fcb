// 1x1 convolutions that are one operator with the batch normalisations around them, on the stand-in GPU and on a real one.
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

constexpr Layout kNhwc = Layout::nhwc;

struct Bottleneck {
  std::optional<BatchNormSpec> before;
  ConvSpec conv;
  BatchNormSpec after;

  std::vector<OpSpec> specs() const {
    std::vector<OpSpec> all = {conv, after};
    if (before) all.insert(all.begin(), *before);
    return all;
  }
};

Bottleneck bottleneck(std::int64_t batch, const Shape& input, std::int64_t outputs, std::int64_t stride = 1) {
  Bottleneck b;
  b.conv = {.batch = batch, .input = input, .output_channels = outputs, .window = square(1, stride), .bias = false};
  b.after = {.batch = batch, .shape = b.conv.convolved(), .epsilon = 1e-3F, .momentum = 0.3F};
  return b;
}
Bottleneck behind_norm(Bottleneck b, Activation activation) {
  b.before = BatchNormSpec{.batch = b.conv.batch, .shape = b.conv.input, .activation = activation};
  return b;
}
Bottleneck with(Bottleneck b, Activation activation, bool add) {
  b.after.activation = activation;
  b.after.add = add;
  return b;
}

// With a number of active samples that is enough for statistics: of few rows with nearly the same value a normalisation
// multiplies rounding errors.
std::pair<Bottleneck, std::int64_t> random_bottleneck(bool normalises) {
  constexpr std::array<Activation, 3> kActivations = {Activation::none, Activation::relu, Activation::relu6};
  constexpr std::int64_t kLeastRows = 40;
  const auto activation = [&] { return kActivations.at(static_cast<std::size_t>(random_between(0, 2))); };
  for (;;) {
    const Shape input{64 * random_between(1, 3), random_between(1, 12), random_between(1, 12)};
    Bottleneck b = bottleneck(random_between(1, 6), input, std::int64_t{64} << random_between(0, 2),
                              normalises ? 1 : random_between(1, 3));
    if (normalises) b = behind_norm(b, activation());
    b = with(b, activation(), random_between(0, 1) == 1);
    const std::int64_t active = random_between(1, b.conv.batch);
    const Shape result = b.conv.convolved();
    if (active * result.height * result.width >= kLeastRows) return {b, active};
  }
}

// Values are rounded to bf16, by 2^-9, where they are stored: the convolution's result, y, the gradients in front of and behind
// the convolution, and what is multiplied. A typical error of several such is far below the tolerance; an element, a tile or a
// term that is missing is not.
constexpr double kTolerance = 2e-2;

void check_bottleneck(Backend& backend, const Bottleneck& b, std::int64_t active) {
  const std::string what = fmt::format("{} active {}", describe(b.specs()), active);
  JoinedDevice device(backend, b.specs(), kNhwc, active);
  // Away from zero: a scale far below its offset would magnify what bf16 rounds.
  for (const std::size_t scale : b.before ? std::vector<std::size_t>{0, 3} : std::vector<std::size_t>{1}) {
    std::vector<float> values = device.parameters[scale].get();
    for (float& value : values) value += std::copysign(0.5F, value);
    device.parameters[scale].set(values);
  }
  if (b.before) avoid_kinks(device, *b.before, active);
  JoinedReference expected(b.specs(), active);
  const Values y = expected.forward(device.values(), true);
  device.forward(true);
  expect_near(device.y.get(active), y, kTolerance * size_of(y), what + ": y");
  EXPECT_TRUE(device.y.zero_from(active)) << what;
  const JoinedValues moved = device.values();
  for (std::size_t which = 0; which < moved.statistics.size(); ++which) {
    const Values& statistics = expected.statistics()[which];
    expect_near(moved.statistics[which], statistics, kTolerance * size_of(statistics), what + ": running statistics");
  }

  const Values random = random_values(static_cast<std::int64_t>(y.size()));
  device.dy.set(expected.without_kinks(random, 0.1), active);
  const JoinedReference::Gradients wanted = expected.backward(device.dy.get(active));
  device.backward();
  expect_near(device.dx[0].get(active), wanted.dx.values, kTolerance * wanted.dx.size, what + ": dx");
  EXPECT_TRUE(device.dx[0].zero_from(active)) << what;
  if (b.after.add) {
    const Values& added = wanted.further.at(0);
    expect_near(device.dx.at(1).get(active), added, kTolerance * size_of(added),
                what + ": the gradient of what is added");
    EXPECT_TRUE(device.dx[1].zero_from(active)) << what;
  }
  for (std::size_t p = 0; p < device.gradients.size(); ++p) {
    const JoinedReference::Gradient& gradient = wanted.parameters[p];
    expect_near(widened(device.gradients[p].get()), gradient.values, kTolerance * gradient.size,
                fmt::format("{}: the gradient of parameter {}", what, p));
  }
  if (!b.before) {
    device.backward(/*add=*/true);
    Values twice = wanted.dx.values;
    for (double& value : twice) value *= 2;
    expect_near(device.dx[0].get(active), twice, kTolerance * 2 * wanted.dx.size, what + ": dx, added");
  }

  const Values evaluated = expected.forward(moved, false);
  device.forward(false);
  expect_near(device.y.get(active), evaluated, kTolerance * size_of(evaluated), what + ": y in evaluation");
  EXPECT_EQ(device.values().statistics, moved.statistics) << what;
}

class NormConv1x1 : public OwnBackend {
 protected:
  void SetUp() override {
    OwnBackend::SetUp();
    if (!IsSkipped()) backend = make_cuda_backend({.precision = Precision::bf16});
  }

  std::unique_ptr<Backend> backend;
};

TEST_F(NormConv1x1, AgreesWithTheReference) {
  for (int round = 0; round < 10; ++round) {
    const auto [b, active] = random_bottleneck(round % 2 == 1);
    check_bottleneck(*backend, b, active);
    if (HasFatalFailure()) return;
  }
}

// All numbers of channels of the result, and more rows than the blocks of one wave take at once, on the stand-in.
TEST_F(NormConv1x1, LargeOnesAgreeWithTheReference) {
  const auto full = [](Bottleneck b) { return with(behind_norm(b, Activation::relu), Activation::relu, true); };
  for (const Bottleneck& b : {full(bottleneck(3, {128, 5, 5}, 512)), full(bottleneck(3, {64, 15, 14}, 256)),
                              with(bottleneck(3, {320, 5, 5}, 64), Activation::relu, false),
                              with(bottleneck(3, {64, 10, 11}, 512, 2), Activation::none, false)}) {
    check_bottleneck(*backend, b, b.conv.batch - 1);
    if (HasFatalFailure()) return;
  }
}

TEST_F(NormConv1x1, WithoutSamplesGradientsAreZero) {
  for (const bool normalises : {false, true}) {
    const Bottleneck b = random_bottleneck(normalises).first;
    JoinedDevice device(*backend, b.specs(), kNhwc, 0);
    device.dy.set({}, 0);
    const JoinedValues before = device.values();
    device.forward(true);
    device.backward();
    EXPECT_TRUE(device.y.zero_from(0));
    EXPECT_TRUE(device.dx[0].zero_from(0));
    EXPECT_EQ(device.values().statistics, before.statistics);
    for (const DeviceArray<float>& gradient : device.gradients) {
      for (const float value : gradient.get()) EXPECT_EQ(value, 0.0F);
    }
  }
}

TEST_F(NormConv1x1, OnlyWhatTheKernelsSupport) {
  const auto joins = [&](const Bottleneck& b) { return backend->ops().join(b.specs(), kNhwc) != nullptr; };
  const auto conv = [](std::int64_t inputs, std::int64_t outputs) { return bottleneck(2, {inputs, 9, 9}, outputs); };
  const auto changed = [&](auto change) {
    Bottleneck b = conv(64, 64);
    change(b);
    return b;
  };
  EXPECT_TRUE(joins(conv(64, 64)));
  EXPECT_TRUE(joins(conv(2048, 512)));
  EXPECT_TRUE(joins(behind_norm(conv(512, 64), Activation::relu)));
  EXPECT_FALSE(joins(behind_norm(conv(576, 64), Activation::relu)));
  EXPECT_FALSE(joins(conv(96, 64)));
  EXPECT_FALSE(joins(conv(64, 96)));
  EXPECT_FALSE(joins(conv(64, 192)));
  EXPECT_FALSE(joins(conv(64, 1024)));
  EXPECT_TRUE(joins(changed([](Bottleneck& b) { b = bottleneck(2, {64, 9, 9}, 64, 2); })));
  EXPECT_FALSE(joins(behind_norm(bottleneck(2, {64, 9, 9}, 64, 2), Activation::relu)));
  EXPECT_FALSE(joins(changed([](Bottleneck& b) { b.conv.bias = true; })));
  EXPECT_FALSE(joins(changed([](Bottleneck& b) { b.conv.relu = true; })));
  EXPECT_FALSE(joins(changed([](Bottleneck& b) { b.conv.groups = 2; })));
  EXPECT_FALSE(joins(changed([](Bottleneck& b) { b.conv.input_gradient = false; })));
  EXPECT_FALSE(joins(changed([](Bottleneck& b) { b.conv.window = square(3, 1, 1); })));
  EXPECT_FALSE(joins(changed([](Bottleneck& b) { b.conv.window.padding.top = 1; })));
  EXPECT_FALSE(joins(changed([](Bottleneck& b) { b.after.synchronized = true; })));
  EXPECT_FALSE(joins(changed([](Bottleneck& b) { b.after.input_bias = true; })));
  EXPECT_EQ(backend->ops().join(conv(64, 64).specs(), Layout::plain), nullptr);
  EXPECT_EQ(make_cuda_backend({.precision = Precision::fp32})->ops().join(conv(64, 64).specs(), kNhwc), nullptr);
}

}  // namespace
}  // namespace ddp
