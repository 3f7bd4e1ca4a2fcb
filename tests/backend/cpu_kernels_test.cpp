// Tests the CPU backend's kernels individually: every tile, format and instruction set, not only the chosen ones.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/backend.h"
#include "backend/cpu/candidates/candidates.h"
#include "backend/cpu/conv/conv.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/linear/linear.h"
#include "backend/cpu/onednn/onednn.h"
#include "backend/cpu/pointwise/elementwise_kernels.h"
#include "backend/cpu/pointwise/gelu_kernels.h"
#include "backend/cpu/pool/pool_kernels.h"
#include "backend/device_values.h"
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
    if (spec.window.stride != 1) spec.average_pool = false;
    ASSERT_TRUE(lanes_conv_supported(spec));
    LanesConvTiles tiles = lanes_fixed_tiles(spec);
    const auto pick = [](const auto& all) {
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

// All bits, with lengths that are not multiples of a vector.
TEST(LanesConversions, AreThoseOfTheArithmetic) {
  const lanes::ElementwiseKernels& kernels = lanes::elementwise_kernels();
  for (const std::int64_t count : {1, 7, 16, 33, 100003}) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) {
      const auto bits = static_cast<std::uint32_t>(generator()());
      std::memcpy(&value, &bits, sizeof value);
    }
    std::vector<std::uint16_t> rounded(values.size());
    std::vector<float> widened(values.size());
    kernels.to_bf16(count, values.data(), rounded.data());
    kernels.from_bf16(count, rounded.data(), widened.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(rounded[i], bf16_bits(values[i])) << i;
      // In bits, as NaN differs from itself.
      ASSERT_EQ(std::bit_cast<std::uint32_t>(widened[i]), std::bit_cast<std::uint32_t>(float_of_bf16(rounded[i]))) << i;
    }
  }
}

// What is timed is a few of the tiles that can compute the convolution, the rule's among them.
TEST(LanesConv, TheShortlistsAreFewOfTheTiles) {
  for (int round = 0; round < 200; ++round) {
    ConvSpec spec = random_conv(round % 3 + 1, round % 2 == 0 ? 1 : 5);
    if (spec.window.stride != 1) spec.average_pool = false;
    const LanesConvTiles fixed = lanes_fixed_tiles(spec);
    const auto expect_few = [&](const auto& few, const auto& all, const auto& rule) {
      EXPECT_LE(few.size(), 5U);
      EXPECT_THAT(few, testing::Contains(rule)) << describe(spec);
      EXPECT_THAT(few, testing::IsSubsetOf(all)) << describe(spec);
    };
    expect_few(lanes_forward_shortlist(spec), lanes_forward_candidates(spec), fixed.forward);
    expect_few(lanes_weights_shortlist(spec), lanes_weights_candidates(spec), fixed.weights);
    if (spec.input_gradient) expect_few(lanes_data_shortlist(spec), lanes_data_candidates(spec), *fixed.data);
  }
}

TEST(CpuTiming, TakesAsManySamplesAsTellKernelsApart) {
  const auto timed = [](const OpSpec& spec) { return batch_of(cpu_timed_spec(spec)); };
  ConvSpec small{.batch = 7, .input = {1, 6, 6}, .output_channels = 2, .window = square(3)};
  EXPECT_EQ(timed(small), 7);
  small.batch = 1000;
  EXPECT_EQ(timed(small), 64);
  const ConvSpec large{.batch = 256, .input = {64, 28, 28}, .output_channels = 64, .window = square(3)};
  EXPECT_EQ(timed(large), std::int64_t{kLanes} * omp_get_max_threads());
  const ConvSpec heavy{.batch = 256, .input = {512, 4, 4}, .output_channels = 512, .window = square(3, 1, 1)};
  EXPECT_EQ(timed(heavy), 64);
  const ActivationSpec wide{.batch = 256, .shape = {64, 64, 64}};
  EXPECT_LT(timed(wide), 64);
  EXPECT_EQ(timed(wide) % kLanes, 0);
}

TEST(LanesConv, ALargeBatchCrossesChunks) {
  ConvSpec spec{
      .batch = 150, .input = {3, 8, 8}, .output_channels = 6, .window = square(3), .relu = true, .average_pool = true};
  const auto op = make_lanes_conv(spec, lanes_fixed_tiles(spec));
  check_kernel(*op, spec, Layout::lanes16, 150, "chunks");
  check_kernel(*op, spec, Layout::lanes16, 70, "chunks, part active");
}

// Images whose rows are computed in several bands, each from a copy of its own.
TEST(LanesConv, ALargeImageCrossesBands) {
  for (const bool pooled : {false, true}) {
    const ConvSpec spec{.batch = 3,
                        .input = {8, 60, 100},
                        .output_channels = 3,
                        .window = square(3),
                        .relu = true,
                        .average_pool = pooled};
    const auto op = make_lanes_conv(spec, lanes_fixed_tiles(spec));
    check_kernel(*op, spec, Layout::lanes16, 3, pooled ? "bands, pooled" : "bands");
  }
}

TEST(LanesConv, AnEmptyShardHasZeroGradients) {
  ConvSpec spec{.batch = 16, .input = {1, 6, 6}, .output_channels = 2, .window = square(3)};
  const auto op = make_lanes_conv(spec, lanes_fixed_tiles(spec));
  check_kernel(*op, spec, Layout::lanes16, 0, "empty");
}

TEST(LanesConv, TilesTravelAsText) {
  for (int round = 0; round < 20; ++round) {
    const ConvSpec spec = random_conv();
    const LanesConvTiles tiles = lanes_fixed_tiles(spec);
    EXPECT_EQ(to_text(lanes_tiles_from_text(spec, to_text(tiles))), to_text(tiles));
  }
  EXPECT_THROW(lanes_tiles_from_text(random_conv(), "forward=lanes.99x1x1"), Error);
}

// As in PyTorch, so that a broken weight or pixel shows in the loss; the other samples are as without it.
TEST(Relu, PassesNaN) {
  const auto backend = make_cpu_backend();
  const std::vector<OpSpec> specs = {
      ConvSpec{.batch = 40, .input = {3, 9, 9}, .output_channels = 18, .window = square(3), .relu = true},
      ConvSpec{.batch = 40, .input = {16, 8, 8}, .output_channels = 32, .window = square(1), .relu = true},
      ConvSpec{
          .batch = 40, .input = {8, 8, 8}, .output_channels = 8, .window = square(3, 1, 1), .groups = 8, .relu = true},
      ConvSpec{.batch = 40,
               .input = {2, 8, 8},
               .output_channels = 5,
               .window = square(3),
               .relu = true,
               .average_pool = true},
      LinearSpec{.batch = 40, .inputs = 33, .outputs = 20, .relu = true},
      BatchNormSpec{.batch = 40, .shape = {5, 4, 4}, .activation = Activation::relu},
      ActivationSpec{.batch = 40, .shape = {5, 4, 4}, .activation = Activation::relu}};
  for (const OpSpec& spec : specs) {
    for (const Layout layout : {Layout::plain, Layout::nhwc, Layout::lanes16}) {
      if (!backend->ops().supports(spec, layout, layout)) continue;
      const auto op = backend->ops().make_op(
          spec, layout, layout, backend->chooser().choose(spec, layout, layout, ChoiceMode::fixed).kernels);
      const std::int64_t broken = random_between(0, batch_of(spec) - 1);
      const Shape in = input_of(spec);
      const Shape out = output_of(spec);
      std::vector<float> x = random_floats(stored_elements(batch_of(spec), in, layout));
      x[static_cast<std::size_t>(element_offset(in, layout, broken, 0, 0, 0))] = std::nanf("");
      const DeviceArray<float> input(*backend, x);
      const DeviceArray<float> output(*backend, random_floats(stored_elements(batch_of(spec), out, layout)));
      const DeviceArray<float> weight(*backend, random_floats(parameter_elements(spec, 0)));
      const DeviceArray<float> bias(*backend, random_floats(parameter_elements(spec, 1)));
      const DeviceArray<float> statistics(*backend,
                                          std::vector<float>(static_cast<std::size_t>(statistic_elements(spec)), 1.0F));
      const Memory saved = backend->memory().allocate(op->traits().saved_bytes, "a test's values");
      const Memory workspace = backend->memory().allocate(op->traits().workspace_bytes, "a test's values");
      op->forward({.inputs = {input.data()},
                   .y = output.data(),
                   .parameters = {weight.data(), bias.data()},
                   .saved = saved.data(),
                   .workspace = workspace.data(),
                   .active = batch_of(spec),
                   .statistics = statistics.data()});
      const std::vector<float> y = output.get();
      const bool shared = std::holds_alternative<BatchNormSpec>(spec);  // by the samples of a channel
      for (std::int64_t n = 0; n < batch_of(spec); ++n) {
        const float first = y[static_cast<std::size_t>(element_offset(out, layout, n, 0, 0, 0))];
        EXPECT_EQ(std::isnan(first), n == broken || shared)
            << spec.index() << " in " << static_cast<int>(layout) << " at " << n;
        EXPECT_FALSE(first < -1e-37F);
      }
    }
  }
}

// --deterministic requires results that do not depend on the number of threads.
class Threads : public testing::Test {
 protected:
  void TearDown() override { omp_set_num_threads(before_); }

  // All results of an operator with these or its fixed kernels; repeated calls use the same random values.
  static std::vector<std::vector<float>> results(const OpSpec& spec, Layout layout, int threads,
                                                 const std::string& kernels = "") {
    omp_set_num_threads(threads);
    const auto backend = make_cpu_backend();
    const auto fixed = backend->chooser().choose(spec, layout, layout, ChoiceMode::fixed).kernels;
    const auto op = backend->ops().make_op(spec, layout, layout, kernels.empty() ? fixed : kernels);
    std::mt19937 engine(7);
    std::uniform_real_distribution<float> uniform(-1, 1);
    const auto random = [&](std::int64_t count) {
      std::vector<float> values(static_cast<std::size_t>(count));
      for (float& value : values) value = uniform(engine);
      return DeviceArray<float>(*backend, values);
    };
    const std::int64_t in = stored_elements(batch_of(spec), input_of(spec), layout);
    const std::int64_t out = stored_elements(batch_of(spec), output_of(spec), layout);
    const auto x = random(in);
    const auto y = random(out);
    const auto dy = random(out);
    const auto dx = random(in);
    const auto weight = random(parameter_elements(spec, 0));
    const auto bias = random(parameter_elements(spec, 1));
    const auto dw = random(parameter_elements(spec, 0));
    const auto db = random(parameter_elements(spec, 1));
    const auto statistics = random(statistic_elements(spec));
    const Memory saved = backend->memory().allocate(op->traits().saved_bytes, "a test's values");
    const Memory workspace = backend->memory().allocate(op->traits().workspace_bytes, "a test's values");
    op->forward({.inputs = {x.data()},
                 .y = y.data(),
                 .parameters = {weight.data(), bias.data()},
                 .saved = saved.data(),
                 .workspace = workspace.data(),
                 .active = batch_of(spec),
                 .statistics = statistics.data()});
    op->backward({.inputs = {x.data()},
                  .y = y.data(),
                  .dy = dy.data(),
                  .input_gradients = {dx.data()},
                  .parameters = {weight.data(), bias.data()},
                  .parameter_gradients = {dw.data(), db.data()},
                  .saved = saved.data(),
                  .workspace = workspace.data(),
                  .active = batch_of(spec)});
    return {y.get(), dx.get(), dw.get(), db.get(), statistics.get()};
  }

 private:
  int before_ = omp_get_max_threads();
};

TEST_F(Threads, ChangeNoBit) {
  const ConvSpec conv{.batch = 80, .input = {12, 15, 15}, .output_channels = 18, .window = square(3, 2, 1)};
  ConvSpec grouped = conv;
  grouped.groups = 3;
  ConvSpec depthwise = conv;
  depthwise.output_channels = 12;
  depthwise.groups = 12;
  ConvSpec pooled = conv;
  pooled.window.stride = 1;
  pooled.input = {3, 14, 14};
  pooled.relu = true;
  pooled.average_pool = true;
  const BatchNormSpec norm{.batch = 80, .shape = {37, 11, 11}, .activation = Activation::relu};
  for (const OpSpec& spec : {OpSpec(conv), OpSpec(grouped), OpSpec(depthwise), OpSpec(pooled), OpSpec(norm)}) {
    EXPECT_EQ(results(spec, Layout::lanes16, 1), results(spec, Layout::lanes16, 3)) << kind_of(spec);
  }
  EXPECT_EQ(results(depthwise, Layout::nhwc, 1, kNhwcDepthwise), results(depthwise, Layout::nhwc, 3, kNhwcDepthwise));
  EXPECT_EQ(results(norm, Layout::nhwc, 1), results(norm, Layout::nhwc, 3));
  EXPECT_EQ(results(norm, Layout::plain, 1), results(norm, Layout::plain, 3));
}

// Nor do they with Winograd's algorithm, in bands of rows, of blocks of samples, and of all; with windows of 5x5, whose data
// gradient is spread, and pooled.
TEST_F(Threads, ChangeNoBitOfWinograd) {
  const auto conv = [](std::int64_t batch, std::int64_t size, const Window2d& window, bool pooled) {
    return ConvSpec{.batch = batch,
                    .input = {40, size, size},
                    .output_channels = 137,
                    .window = window,
                    .relu = pooled,
                    .average_pool = pooled};
  };
  for (const ConvSpec& spec : {conv(80, 5, square(3, 1, 1), false), conv(80, 23, square(3, 1, 1), false),
                               conv(33, 6, square(3, 1, 1), false), conv(80, 12, square(5), true)}) {
    const LanesConvTiles tiles{lanes_forward_candidates(spec).back(), lanes_data_candidates(spec).back(),
                               lanes_weights_candidates(spec).back()};
    EXPECT_TRUE(is_winograd(tiles.forward) && is_winograd(tiles.data) && is_winograd(tiles.weights));
    EXPECT_EQ(results(spec, Layout::lanes16, 1, to_text(tiles)), results(spec, Layout::lanes16, 3, to_text(tiles)));
  }
}

// A mean of 3000 standard deviations must not reduce the precision of the variance or the result.
TEST(BatchNorm, ALargeMeanIsNoMatter) {
  const std::int64_t batch = 48;
  const BatchNormSpec spec{.batch = batch, .shape = {17, 5, 5}};
  const auto backend = make_cpu_backend();
  reference::Inputs in{.inputs = {random_values(batch * spec.shape.elements())},
                       .parameters = {reference::Values(17, 1.0), reference::Values(17, 0.0)},
                       .statistics = reference::Values(34, 0.0)};
  // Multiples of 1/16 that are exact in fp32.
  for (double& x : in.x()) x = std::round(x * 16) / 16 + 2000;
  const reference::Values wanted = reference::forward(spec, in).y;
  for (const Layout layout : kLayouts) {
    const auto op = backend->ops().make_op(spec, layout, layout, "");
    DeviceActivation x(*backend, batch, spec.shape, layout);
    DeviceActivation y(*backend, batch, spec.shape, layout);
    x.set(in.x(), batch);
    const DeviceArray<float> weight(*backend, std::vector<float>(17, 1.0F));
    const DeviceArray<float> zeros(*backend, std::vector<float>(34, 0.0F));
    const Memory saved = backend->memory().allocate(op->traits().saved_bytes, "a test's values");
    const Memory workspace = backend->memory().allocate(op->traits().workspace_bytes, "a test's values");
    op->forward({.inputs = {x.data()},
                 .y = y.data(),
                 .parameters = {weight.data(), zeros.data()},
                 .saved = saved.data(),
                 .workspace = workspace.data(),
                 .active = batch,
                 .statistics = DeviceArray<float>(*backend, std::vector<float>(34, 0.0F)).data()});
    const reference::Values actual = y.get(batch);
    for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(actual[i], wanted[i], 1e-5) << to_string(layout);
  }
}

// A plan is valid for one version of oneDNN, because speed and rounding differ between versions.
TEST(OneDnn, ItsVersionIsPartOfTheFingerprint) {
  const std::string fingerprint = make_cpu_backend()->ops().traits().fingerprint;
  const char* expected = std::getenv("DDP_EXPECT_ONEDNN");
  EXPECT_THAT(fingerprint, testing::ContainsRegex(expected == nullptr ? " onednn-[0-9]+[.][0-9]+[.][0-9]+ "
                                                                      : fmt::format(" onednn-{} ", expected)));
}

// As the variable says by its end: the test runs with avx2+onednn and baseline+onednn as well.
TEST(OneDnn, IsLimitedWithTheKernels) {
  const char* variable = std::getenv("DDP_INSTRUCTION_SET");
  if (variable == nullptr || !std::string(variable).ends_with("+onednn")) {
    EXPECT_FALSE(lanes::limits_onednn());
    return;
  }
  const std::string fingerprint = make_cpu_backend()->ops().traits().fingerprint;
  EXPECT_THAT(fingerprint, testing::HasSubstr(std::string(variable).starts_with("avx2") ? " isa-0x7 " : " isa-0x1 "));
}

TEST(OneDnnConv, EveryFormatAgreesWithTheReference) {
  int built = 0;
  for (int round = 0; round < 20; ++round) {
    ConvSpec spec = random_conv(2);
    if (round % 4 == 0) {
      spec.window = square(1);
      spec.average_pool = spec.relu && spec.input.height % 2 == 0 && spec.input.width % 2 == 0;
    }
    for (const char* name : {"nhwc", "any", "winograd", "linear"}) {
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

// Vanishing gradients must not slow down a step: 2e-39 is half of 4e-39, and both are flushed to zero.
TEST(CpuBackend, DenormalNumbersAreZeroInAllThreads) {
  const auto backend = make_cpu_backend();
  int threads = 0;
  int flushing = 0;
#pragma omp parallel num_threads(3) reduction(+ : threads, flushing)
  {
    volatile float half = 0.5F;
    volatile float tiny = 4e-39F;
    threads += 1;
    flushing += tiny * half == 0.0F ? 1 : 0;
  }
  EXPECT_EQ(threads, 3);
  EXPECT_EQ(flushing, 3);
}

// Relative error of sigmoid and tanh over the whole range, because they use our own exponential.
TEST(Activations, SigmoidAndTanhAreRightAtAnySize) {
  std::vector<float> x = {0, -0.0F, 1e-38F, 0.624F, -0.625F, 0.626F, 20, -87, 88, -88.5F, 1e30F, -1e30F};
  for (int i = 0; i < 5000; ++i) {
    const double size = std::exp(static_cast<double>(random_between(-20'000, 4'600)) / 1000);
    x.push_back(static_cast<float>(random_between(0, 1) == 0 ? size : -size));
  }
  const auto count = static_cast<std::int64_t>(x.size());
  std::vector<float> y(x.size());
  const auto expect_close = [&](Activation activation, auto exact) {
    lanes::elementwise_kernels().fp32.forward[static_cast<std::size_t>(activation)](count, x.data(), nullptr, y.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = exact(static_cast<double>(x[i]));
      // Sigmoid stops at e^-87, near the smallest normal float.
      EXPECT_NEAR(static_cast<double>(y[i]), expected, 4e-7 * std::abs(expected) + 2e-38)
          << to_string(activation) << " of " << x[i];
    }
  };
  expect_close(Activation::sigmoid, [](double v) { return 1 / (1 + std::exp(-v)); });
  expect_close(Activation::tanh, [](double v) { return std::tanh(v); });
  x.assign(40, std::nanf(""));
  for (const std::size_t kernel : {0U, 1U, 2U, 3U, 4U}) {
    lanes::elementwise_kernels().fp32.forward[kernel](40, x.data(), nullptr, y.data());
    for (std::size_t i = 0; i < 40; ++i) EXPECT_TRUE(std::isnan(y[i])) << kernel << " at " << i;
  }
}

// GELU over the whole range against its definition in double precision; NaNs propagate.
TEST(Activations, GeluIsRightAtAnySize) {
  std::vector<float> x = {0, -0.0F, 1e-38F, -1e-20F, 0.5F, -0.5F, 5, -5, 13, -13, 1e18F, -1e18F, 1e30F, -1e30F};
  for (int i = 0; i < 5000; ++i) {
    const double size = std::exp(static_cast<double>(random_between(-20'000, 4'600)) / 1000);
    x.push_back(static_cast<float>(random_between(0, 1) == 0 ? size : -size));
  }
  const auto count = static_cast<std::int64_t>(x.size());
  const std::vector<float> ones(x.size(), 1.0F);
  std::vector<float> y(x.size());
  std::vector<float> dx(x.size());
  for (const GeluForm form : {GeluForm::exact, GeluForm::tanh}) {
    const lanes::GeluKernels& kernels = lanes::gelu_kernels().forms[static_cast<std::size_t>(form)];
    const GeluSpec spec{.batch = 1, .shape = {count, 1, 1}, .form = form};
    const reference::Values values(x.begin(), x.end());
    const reference::Values expected = reference::forward(spec, {.inputs = {values}}).y;
    const reference::Values gradients =
        reference::backward(spec, {.inputs = {values}}, reference::Values(x.size(), 1.0)).dx();
    kernels.forward(count, x.data(), y.data());
    kernels.backward(count, x.data(), ones.data(), dx.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(y[i]), expected[i], 4e-7 * std::abs(values[i]) + 2e-38) << x[i];
      // Neither Phi(x) nor x Phi'(x) exceeds about 1.
      EXPECT_NEAR(static_cast<double>(dx[i]), gradients[i], 2e-6) << x[i];
    }
    const std::vector<float> broken(40, std::nanf(""));
    kernels.forward(40, broken.data(), y.data());
    for (std::size_t i = 0; i < 40; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
  }
}

// The first of equal maxima is chosen, NaNs propagate, and windows of more than 256 positions work.
TEST(Pooling, PlacesOfMaximaAreExact) {
  for (const std::int64_t inner : {1, 16, 21, 48}) {
    for (const lanes::PoolWindow window : {lanes::PoolWindow{2, 3, 5 * inner, inner, inner},
                                           {1, 1, inner, inner, inner},
                                           {17, 18, 20 * inner, inner, inner},
                                           {3, 2, 14 * inner, 4 * inner, inner}}) {
      std::vector<float> x(
          static_cast<std::size_t>((window.rows * window.row_step) + window.columns * window.column_step));
      for (float& value : x) value = static_cast<float>(random_between(-4, 4));
      if (window.columns > 1) x[static_cast<std::size_t>(window.column_step)] = std::nanf("");
      std::vector<float> y(static_cast<std::size_t>(inner));
      std::vector<std::int32_t> places(y.size());
      lanes::pool_kernels().large.forward(window, x.data(), y.data(), places.data());
      for (std::int64_t k = 0; k < inner; ++k) {
        std::int32_t best = 0;
        const auto value = [&](std::int32_t place) {
          return x[static_cast<std::size_t>(place / window.columns * window.row_step +
                                            place % window.columns * window.column_step + k)];
        };
        for (std::int32_t place = 0; place < window.rows * window.columns; ++place) {
          const float next = value(place);
          if (next > value(best) || std::isnan(next)) best = place;
        }
        const auto at = static_cast<std::size_t>(k);
        EXPECT_EQ(places[at], best) << inner << " values, " << k;
        EXPECT_TRUE(y[at] == value(best) || std::isnan(value(best)));
      }
    }
  }
}

}  // namespace
}  // namespace ddp
