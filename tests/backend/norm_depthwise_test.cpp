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
#include "backend/device_values.h"
#include "backend/op_check.h"

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

std::string describe(const Joined& j) {
  std::string text;
  for (const OpSpec& spec : j.specs()) text += (text.empty() ? "" : ", ") + describe(spec);
  return text;
}

Values widened(const std::vector<float>& values) { return {values.begin(), values.end()}; }

double size_of(const Values& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

// One pass by the operators of the reference, for the active samples.
class Reference {
 public:
  Reference(const Joined& j, std::int64_t active) : specs_(j.specs()), inputs_(specs_.size()) {
    for (OpSpec& spec : specs_) std::visit([&](auto& s) { s.batch = active; }, spec);
  }

  // x, the parameters of all operators, and the statistics of the two normalisations.
  Values forward(const Values& x, const std::vector<Values>& parameters, const std::array<Values, 2>& statistics,
                 bool training) {
    Values values = x;
    statistics_.clear();
    std::size_t p = 0;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      const bool norm = std::holds_alternative<BatchNormSpec>(specs_[i]);
      inputs_[i] = {.x = values, .training = training};
      inputs_[i].parameters.weight = parameters[p++];
      if (norm) {
        inputs_[i].parameters.bias = parameters[p++];
        inputs_[i].statistics = statistics.at(statistics_.size());
      }
      const reference::Outputs out = reference::forward(specs_[i], inputs_[i]);
      values = out.y;
      if (norm) statistics_.push_back(out.statistics);
    }
    return values;
  }
  const std::vector<Values>& statistics() const { return statistics_; }

  // Without gradients where rounding decides which of them pass the last activation.
  Values without_kinks(Values dy, double distance) const {
    const std::vector<bool> near = reference::near_kinks(specs_.back(), inputs_.back(), distance);
    for (std::size_t i = 0; i < near.size(); ++i) dy[i] = near[i] ? 0 : dy[i];
    return dy;
  }
  // A gradient, and the size that rounding errors are relative to. Those of parameters are sums that may cancel out: the
  // second normalisation undoes what changes its whole input by a factor or an offset. The errors of a value are in the sums of
  // all inputs at its place: in those of the convolution in front, as many as there are input channels.
  struct Gradient {
    Values values;
    double size = 0;
  };
  // The gradients of the parameters, then dx.
  std::vector<Gradient> backward(const Values& dy) const {
    std::vector<Gradient> all;
    Values gradient = dy;
    for (std::size_t i = specs_.size(); i-- > 0;) {
      const reference::Gradients g = reference::backward(specs_[i], inputs_[i], gradient);
      double size = size_of(gradient);
      const auto* conv = std::get_if<ConvSpec>(&specs_[i]);
      if (conv != nullptr && conv->groups == 1) {
        const Values& x = inputs_[i].x;
        const double places = static_cast<double>(x.size()) / static_cast<double>(conv->input.channels);
        size *= std::max(1.0, size_of(x) / std::sqrt(places));
      }
      if (!g.parameters.bias.empty()) all.push_back({g.parameters.bias, size});
      all.push_back({g.parameters.weight, size});
      gradient = g.dx;
    }
    std::reverse(all.begin(), all.end());
    all.push_back({gradient, size_of(gradient)});
    return all;
  }

 private:
  std::vector<OpSpec> specs_;
  std::vector<reference::Inputs> inputs_;
  std::vector<Values> statistics_;
};

void expect_near(const Values& actual, const Values& expected, double most, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  Values apart = actual;
  for (std::size_t i = 0; i < expected.size(); ++i) apart[i] -= expected[i];
  EXPECT_LE(size_of(apart), most) << what;
}

// The operator on the device, with random values; memory that it has not written holds garbage.
class Device {
 public:
  Device(Backend& backend, const Joined& j, std::int64_t active)
      : op_(backend.ops().join(j.specs(), kLayout)),
        active_(active),
        x(backend, j.conv.batch, j.input(), kLayout),
        y(backend, j.conv.batch, j.output(), kLayout),
        dy(backend, j.conv.batch, j.output(), kLayout),
        dx(backend, j.conv.batch, j.input(), kLayout) {
    const std::int64_t channels = j.conv.output_channels;
    std::vector<std::int64_t> counts = {channels, channels, j.conv.weights(), channels, channels};
    if (j.wide) counts.insert(counts.begin(), j.wide->weights());
    if (j.narrow) counts.push_back(j.narrow->weights());
    for (const std::int64_t count : counts) {
      parameters.emplace_back(backend, random_floats(count));
      gradients.emplace_back(backend, std::vector<float>(static_cast<std::size_t>(count), NAN));
    }
    // A channel with a scale far below its offset would have a mean of many deviations, which magnifies what bf16 rounds.
    DeviceArray<float>& scales = parameters[j.wide ? 1 : 0];
    std::vector<float> apart = scales.get();
    for (float& scale : apart) scale += std::copysign(0.5F, scale);
    scales.set(apart);
    std::vector<float> running = random_floats(4 * channels);
    for (float& value : running) value = std::abs(value) + 0.5F;
    statistics.emplace_back(backend, running);
    saved_.emplace_back(backend, std::vector<std::uint8_t>(op_->saved_bytes(), 0xFF));
    workspace_.emplace_back(backend, std::vector<std::uint8_t>(op_->workspace_bytes(), 0xFF));
    x.set(random_values(active * j.input().elements()), active, 5);
    y.fill(NAN);
    dx.fill(NAN);
  }

  void forward(bool training) {
    ForwardArguments a{.x = x.data(), .y = y.data(), .saved = bytes(saved_), .workspace = bytes(workspace_)};
    a.active = active_;
    a.statistics = statistics.front().data();
    a.training = training;
    for (std::size_t p = 0; p < parameters.size(); ++p) a.parameters.at(p) = parameters[p].data();
    op_->forward(a);
  }
  void backward(bool add = false) {
    BackwardArguments a{.x = x.data(), .y = y.data(), .dy = dy.data(), .dx = dx.data()};
    a.add_to_dx = add;
    a.saved = bytes(saved_);
    a.workspace = bytes(workspace_);
    a.active = active_;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      a.parameters.at(p) = parameters[p].data();
      a.parameter_gradients.at(p) = gradients[p].data();
    }
    op_->backward(a);
  }

 private:
  static std::byte* bytes(const std::vector<DeviceArray<std::uint8_t>>& memory) {
    return static_cast<std::byte*>(static_cast<void*>(memory.front().data()));
  }

  std::unique_ptr<Op> op_;
  std::int64_t active_;

 public:
  DeviceActivation x, y, dy, dx;
  std::vector<DeviceArray<float>> parameters, gradients, statistics;

 private:
  std::vector<DeviceArray<std::uint8_t>> saved_, workspace_;
};

// The statistics of the first or the second normalisation.
Values half(const std::vector<float>& statistics, std::size_t which) {
  const auto size = static_cast<std::ptrdiff_t>(statistics.size() / 2);
  const auto begin = statistics.begin() + static_cast<std::ptrdiff_t>(which) * size;
  return {begin, begin + size};
}

// The result of the convolution in front is exact in bf16, so that the activation behind it decides as in double precision.
void make_exact(Device& device, std::int64_t active) {
  std::vector<float> weights = device.parameters.front().get();
  for (float& value : weights) value = static_cast<float>(random_between(-1, 1));
  device.parameters.front().set(weights);
  Values x = device.x.get(active);
  for (double& value : x) value = static_cast<double>(random_between(-8, 8)) / 8;
  device.x.set(x, active, 5);
}

// Draws those inputs again that the first normalisation brings so near a kink of its activation that rounding decides whether
// their gradient passes: one that does would exceed the tolerance of fp32.
void avoid_kinks(Device& device, const Joined& j, std::int64_t active) {
  BatchNormSpec spec = j.before;
  spec.batch = active;
  reference::Inputs in{.parameters = {widened(device.parameters[0].get()), widened(device.parameters[1].get())},
                       .statistics = half(device.statistics.front().get(), 0)};
  for (bool any = true; any;) {
    in.x = device.x.get(active);
    const std::vector<bool> near = reference::near_kinks(OpSpec{spec}, in, 1e-4);
    any = std::find(near.begin(), near.end(), true) != near.end();
    for (std::size_t i = 0; i < near.size(); ++i) in.x[i] = near[i] ? random_values(1).front() : in.x[i];
    if (any) device.x.set(in.x, active, 5);
  }
}

// The second normalisation brings no value near a kink of its activation: all of a channel pass, or none.
void keep_from_kinks(Device& device, const Joined& j) {
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
  const std::string what = fmt::format("{} active {}{}", describe(j), active, bf16 ? " bf16" : "");
  Device device(backend, j, active);
  if (j.wide) {
    make_exact(device, active);
  } else {
    avoid_kinks(device, j, active);
  }
  if (j.narrow && kinks == Kinks::avoided) keep_from_kinks(device, j);
  Reference expected(j, active);
  const Values x = device.x.get(active);
  std::vector<Values> parameters;
  for (const DeviceArray<float>& p : device.parameters) parameters.push_back(widened(p.get()));
  const std::vector<float> running = device.statistics.front().get();
  const Values y = expected.forward(x, parameters, {half(running, 0), half(running, 1)}, true);
  device.forward(true);
  expect_near(device.y.get(active), y, tolerance * size_of(y), what + ": y");
  EXPECT_TRUE(device.y.zero_from(active)) << what;
  const std::vector<float> moved = device.statistics.front().get();
  for (const std::size_t which : {0, 1}) {
    const Values& statistics = expected.statistics()[which];
    expect_near(half(moved, which), statistics, tolerance * size_of(statistics), what + ": running statistics");
  }

  Values dy = random_values(static_cast<std::int64_t>(y.size()));
  if (!j.narrow) dy = expected.without_kinks(dy, bf16 ? 0.1 : 1e-3);
  device.dy.set(dy, active);
  const std::vector<Reference::Gradient> wanted = expected.backward(device.dy.get(active));
  device.backward();
  const Reference::Gradient& dx = wanted.back();
  expect_near(device.dx.get(active), dx.values, backward_tolerance * dx.size, what + ": dx");
  EXPECT_TRUE(device.dx.zero_from(active)) << what;
  for (std::size_t p = 0; p < device.gradients.size(); ++p) {
    expect_near(widened(device.gradients[p].get()), wanted[p].values, backward_tolerance * wanted[p].size,
                fmt::format("{}: the gradient of parameter {}", what, p));
  }
  if (j.wide) {
    device.backward(/*add=*/true);
    Values twice = dx.values;
    for (double& value : twice) value *= 2;
    expect_near(device.dx.get(active), twice, backward_tolerance * 2 * dx.size, what + ": dx, added");
  }

  const Values evaluated = expected.forward(x, parameters, {half(moved, 0), half(moved, 1)}, false);
  device.forward(false);
  expect_near(device.y.get(active), evaluated, tolerance * size_of(evaluated), what + ": y in evaluation");
  EXPECT_EQ(device.statistics.front().get(), moved) << what;
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
  Device device(*backend, j, 0);
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
  for (const Joined& j : {large(3, {576, 7, 7}, 96), large(2, {392, 9, 10}, 40), large(7, {32, 70, 70}, 16)}) {
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
