// Convolutions and linear layers in every layout that a backend supports, with the kernels that it chooses.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/device_values.h"
#include "backend/operators_case.h"
#include "base/error.h"

namespace ddp {
namespace {

TEST_P(Operators, ConvolutionsAgreeWithTheReference) {
  for (int round = 0; round < 24; ++round) {
    const ConvSpec spec = random_conv(2, 4);
    const ChoiceMode mode = round % 12 == 0 ? ChoiceMode::timed : ChoiceMode::fixed;
    EXPECT_GE(check_in_every_layout(spec, mode, describe(spec)), 1) << describe(spec);
    if (HasFatalFailure()) return;
  }
}

// Windows no larger than the stride, so that some pixels are in none.
TEST_P(Operators, NarrowStridedConvolutionsAgreeWithTheReference) {
  for (int round = 0; round < 24; ++round) {
    ConvSpec spec = random_conv(1, 3);
    spec.window.height = random_between(1, 2);
    spec.window.width = random_between(1, 2);
    spec.window.padding = {random_between(0, 1), random_between(0, 1), random_between(0, 1), random_between(0, 1)};
    spec.window.stride = random_between(2, 3);
    spec.average_pool = false;
    if (round % 2 == 0) {
      spec.window.height = spec.window.width = 1;
      spec.window.padding = {};
      spec.input.height = spec.window.stride.vertical * random_between(2, 6);
      spec.input.width = spec.window.stride.vertical * random_between(2, 6);
    }
    EXPECT_GE(check_in_every_layout(spec, ChoiceMode::fixed, describe(spec)), 1) << describe(spec);
    if (HasFatalFailure()) return;
  }
}

// Different strides, and taps apart, also of depthwise convolutions.
ConvSpec random_dilated_conv() {
  ConvSpec s = random_conv(1, 3);
  s.average_pool = false;
  s.window.stride = {random_between(1, 3), random_between(1, 3)};
  const auto most = [](std::int64_t size, std::int64_t taps) { return taps == 1 ? 3 : (size - 1) / (taps - 1); };
  s.window.dilation = {random_between(1, std::min<std::int64_t>(3, most(s.input.height, s.window.height))),
                       random_between(1, std::min<std::int64_t>(3, most(s.input.width, s.window.width)))};
  if (random_between(0, 2) == 0) s.groups = s.output_channels = s.input.channels;
  return s;
}

TEST_P(Operators, DilatedConvolutionsAgreeWithTheReference) {
  for (int round = 0; round < 24; ++round) {
    const ConvSpec spec = random_dilated_conv();
    const ChoiceMode mode = round % 12 == 0 ? ChoiceMode::timed : ChoiceMode::fixed;
    EXPECT_GE(check_in_every_layout(spec, mode, describe(spec)), 1) << describe(spec);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Operators, TransposedConvolutionsAgreeWithTheReference) {
  for (int round = 0; round < 24; ++round) {
    ConvTransposeSpec s{.batch = random_between(1, 20),
                        .input = {},
                        .window = {.height = random_between(1, 4),
                                   .width = random_between(1, 4),
                                   .stride = {random_between(1, 3), random_between(1, 3)},
                                   .dilation = {random_between(1, 2), random_between(1, 2)}},
                        .groups = random_between(1, 3),
                        .bias = random_between(0, 3) != 0,
                        .input_gradient = random_between(0, 3) != 0};
    s.input = {s.groups * random_between(1, 5), random_between(2, 7), random_between(2, 7)};
    s.output_channels = s.groups * random_between(1, 5);
    s.output_padding = {random_between(0, s.window.stride.vertical - 1),
                        random_between(0, s.window.stride.horizontal - 1)};
    s.window.padding = {random_between(0, s.window.rows() / 2), random_between(0, s.window.columns() / 2),
                        random_between(0, s.window.rows() / 2), random_between(0, s.window.columns() / 2)};
    const std::string what =
        fmt::format("batch {} in {}x{}x{} out {}{} output padding {},{} groups {}", s.batch, s.input.channels,
                    s.input.height, s.input.width, s.output_channels, Description().add(s.window).text(),
                    s.output_padding.vertical, s.output_padding.horizontal, s.groups);
    const ChoiceMode mode = round % 12 == 0 ? ChoiceMode::timed : ChoiceMode::fixed;
    EXPECT_GE(check_in_every_layout(s, mode, what), 1) << what;
    if (HasFatalFailure()) return;
  }
}

// Shapes of real models: many channels, tensors split over many blocks, sums in several chunks.
TEST_P(Operators, LargeConvolutionsAgreeWithTheReference) {
  const std::vector<ConvSpec> specs = {
      {.batch = 20,
       .input = {1, 26, 26},
       .output_channels = 20,
       .window = square(3),
       .relu = true,
       .average_pool = true,
       .input_gradient = false},
      {.batch = 20,
       .input = {20, 12, 12},
       .output_channels = 50,
       .window = square(5),
       .relu = true,
       .average_pool = true},
      {.batch = 4, .input = {64, 14, 14}, .output_channels = 72, .window = square(3, 1, 1)},
      {.batch = 4, .input = {40, 15, 15}, .output_channels = 33, .window = square(1, 2), .relu = true},
      // Depthwise, as in MobileNet.
      {.batch = 18,
       .input = {40, 14, 14},
       .output_channels = 40,
       .window = square(3, 1, 1),
       .groups = 40,
       .bias = false},
      {.batch = 18,
       .input = {33, 15, 13},
       .output_channels = 33,
       .window = square(3, 2, 1),
       .groups = 33,
       .bias = false}};
  for (const ConvSpec& spec : specs) {
    EXPECT_GE(check_in_every_layout(spec, ChoiceMode::fixed, describe(spec)), 1);
    if (HasFatalFailure()) return;
  }
}

// Channel counts that can and cannot be vectorised, in one or several blocks; any stride and padding, even wider than
// the window.
ConvSpec random_depthwise(std::int64_t channels) {
  ConvSpec s;
  s.batch = random_between(1, 4);
  s.window.height = s.window.width = random_between(1, 2) * 2 + 1;
  s.groups = s.output_channels = channels;
  s.input = {channels, random_between(s.window.height, 15), random_between(s.window.width, 15)};
  s.window.stride = random_between(1, 2);
  s.window.padding.top = random_between(0, s.window.height);
  s.window.padding.left = random_between(0, s.window.height);
  s.window.padding.bottom = random_between(0, s.window.height);
  s.window.padding.right = random_between(0, s.window.height);
  s.bias = random_between(0, 1) == 1;
  s.input_gradient = random_between(0, 3) != 0;
  return s;
}

TEST_P(Operators, DepthwiseConvolutionsAgreeWithTheReference) {
  for (const std::int64_t channels : {8, 16, 40, 264, 12, 7}) {
    for (int round = 0; round < 4; ++round) {
      const ConvSpec spec = random_depthwise(channels);
      const ChoiceMode mode = channels == 16 && round == 0 ? ChoiceMode::timed : ChoiceMode::fixed;
      EXPECT_GE(check_in_every_layout(spec, mode, describe(spec)), 1) << describe(spec);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Operators, LinearLayersAgreeWithTheReference) {
  for (int round = 0; round < 20; ++round) {
    const LinearSpec spec{.batch = random_between(1, 130),
                          .inputs = random_between(1, 70),
                          .outputs = random_between(1, 50),
                          .bias = round % 3 != 0,
                          .relu = round % 2 == 1,
                          .input_gradient = random_between(0, 1) == 1};
    const std::string what = fmt::format("linear {} x {} -> {}{}{}", spec.batch, spec.inputs, spec.outputs,
                                         spec.bias ? "" : " without bias", spec.relu ? " relu" : "");
    EXPECT_GE(check_in_every_layout(spec, round < 2 ? ChoiceMode::timed : ChoiceMode::fixed, what), 1);
    if (HasFatalFailure()) return;
  }
  // More rows than one chunk of the bias gradient's sum.
  check_in_every_layout(LinearSpec{.batch = 700, .inputs = 20, .outputs = 40, .relu = true}, ChoiceMode::fixed,
                        "a large batch");
}

TEST_P(Operators, AnEmptyShardHasZeroGradients) {
  const std::vector<OpSpec> specs = {
      ConvSpec{.batch = 8, .input = {2, 6, 6}, .output_channels = 3, .window = square(3), .relu = true},
      ConvSpec{
          .batch = 8, .input = {2, 6, 6}, .output_channels = 2, .window = square(1, 2), .groups = 2, .bias = false},
      LinearSpec{.batch = 8, .inputs = 5, .outputs = 4, .relu = true},
      BatchNormSpec{.batch = 8, .shape = {3, 2, 2}, .activation = Activation::relu6, .add = true},
      PoolSpec{.batch = 8, .input = {3, 4, 4}, .kind = PoolSpec::Kind::maximum},
      ConvTransposeSpec{.batch = 8, .input = {3, 4, 4}, .output_channels = 2, .window = square(2, 2)},
      PadSpec{.batch = 8, .input = {3, 4, 4}, .padding = uniform_padding(2)},
      AddSpec{.batch = 8, .shape = {3, 2, 2}},
      LrnSpec{.batch = 8, .shape = {3, 2, 2}},
      DropoutSpec{.batch = 8, .shape = {3, 2, 2}}};
  for (const OpSpec& spec : specs) {
    for (const Layout layout : kLayouts) {
      if (!backend().ops().supports(spec, layout, layout)) continue;
      const auto op = backend().ops().make_op(
          spec, layout, layout, backend().chooser().choose(spec, layout, layout, ChoiceMode::fixed).kernels);
      check_op({backend(), *op, spec, layout, layout, 0, tolerance(), "empty " + kind_of(spec)});
    }
  }
}

// Running an operator twice on the same values must be bit-identical.
void check_repeatable(Backend& backend, const ConvSpec& spec) {
  const auto floats = [](std::int64_t count) {
    const reference::Values values = random_values(count);
    return std::vector<float>(values.begin(), values.end());
  };
  const std::int64_t weights = parameter_elements(spec, 0);
  for (const Layout layout : kLayouts) {
    if (!backend.ops().supports(spec, layout, layout)) continue;
    const KernelChoice choice = backend.chooser().choose(spec, layout, layout, ChoiceMode::fixed);
    EXPECT_EQ(choice.kernels, backend.chooser().choose(spec, layout, layout, ChoiceMode::fixed).kernels);
    const auto op = backend.ops().make_op(spec, layout, layout, choice.kernels);
    DeviceActivation x(backend, spec.batch, spec.input, layout);
    DeviceActivation dy(backend, spec.batch, spec.output(), layout);
    x.set(random_values(spec.batch * spec.input.elements()), spec.batch);
    dy.set(random_values(spec.batch * spec.output().elements()), spec.batch);
    const DeviceActivation y(backend, spec.batch, spec.output(), layout);
    const DeviceActivation dx(backend, spec.batch, spec.input, layout);
    const DeviceArray<float> w(backend, floats(weights));
    const DeviceArray<float> b(backend, floats(spec.output_channels));
    const DeviceArray<float> dw(backend, std::vector<float>(static_cast<std::size_t>(weights)));
    const DeviceArray<float> db(backend, std::vector<float>(static_cast<std::size_t>(spec.output_channels)));
    const Memory saved = backend.memory().allocate(op->traits().saved_bytes, "a test's values");
    const Memory workspace = backend.memory().allocate(op->traits().workspace_bytes, "a test's values");
    const auto results = [&] {
      op->forward({{x.data()}, y.data(), {w.data(), b.data()}, saved.data(), workspace.data(), spec.batch});
      op->backward({{x.data()},
                    y.data(),
                    dy.data(),
                    {dx.data()},
                    {w.data(), b.data()},
                    {dw.data(), db.data()},
                    saved.data(),
                    workspace.data(),
                    spec.batch});
      return std::vector<std::vector<float>>{y.stored(), dx.stored(), dw.get(), db.get()};
    };
    EXPECT_EQ(results(), results()) << to_string(layout);
  }
}

TEST_P(Operators, RunsAreRepeatable) {
  if (!GetParam().repeatable) GTEST_SKIP() << "this backend does not promise it";
  check_repeatable(backend(), {.batch = 16,
                               .input = {8, 10, 10},
                               .output_channels = 9,
                               .window = square(3),
                               .relu = true,
                               .average_pool = true});
  // Each channel is summed in several chunks.
  check_repeatable(backend(), {.batch = 16,
                               .input = {64, 20, 20},
                               .output_channels = 64,
                               .window = {.height = 3, .width = 3, .stride = 2, .padding = {1, 1, 0, 0}},
                               .groups = 64});
}

TEST_P(Operators, UnknownKernelsAreRefused) {
  const ConvSpec spec{.batch = 4, .input = {2, 6, 6}, .output_channels = 3, .window = square(3)};
  for (const Layout layout : kLayouts) {
    if (!backend().ops().supports(spec, layout, layout)) continue;
    try {
      static_cast<void>(
          backend().ops().make_op(spec, layout, layout, "forward=nothing.1 data=nothing.1 weights=nothing.1"));
      ADD_FAILURE() << "unknown kernels were taken in " << to_string(layout);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::preflight) << error.what();
    }
  }
}

DDP_ON_EVERY_BACKEND(On, Operators);

}  // namespace
}  // namespace ddp
