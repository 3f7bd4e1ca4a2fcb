// Batch normalisation, sums, activations, local response normalisation, dropout, pooling and reordering in every layout
// that a backend supports.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backend/device_values.h"
#include "backend/operators_case.h"

namespace ddp {
namespace {

class SimpleOperators : public Operators {
 protected:
  static std::string describe_shape(std::int64_t batch, const Shape& shape) {
    return fmt::format("batch {} of {}x{}x{}", batch, shape.channels, shape.height, shape.width);
  }
  static ChoiceMode mode_of(int round) { return round == 0 ? ChoiceMode::timed : ChoiceMode::fixed; }
};

Shape random_shape(std::int64_t most_channels = 5) {
  return {random_between(1, most_channels), random_between(1, 9), random_between(1, 9)};
}

TEST_P(SimpleOperators, BatchNormsAgreeWithTheReference) {
  for (int round = 0; round < 12; ++round) {
    for (const Activation activation : {Activation::none, Activation::relu, Activation::relu6}) {
      const BatchNormSpec spec{
          .batch = random_between(1, 40),
          .shape = round % 4 == 0 ? Shape{random_between(1, 70), 1, 1} : random_shape(37),
          .epsilon = round % 2 == 0 ? 1e-5F : 1e-3F,
          .momentum = round % 3 == 0 ? 0.1F : 0.3F,
          .activation = activation,
          .add = round % 2 == 1,
          .input_bias = backend().ops().traits().takes_bias_into_norm && round % 3 != 1 && round % 4 < 2,
          .frozen = round % 4 >= 2};
      const std::string what =
          fmt::format("batch norm, {}{} {}{}{}", describe_shape(spec.batch, spec.shape), spec.add ? " add" : "",
                      to_string(activation), spec.input_bias ? " input bias" : "", spec.frozen ? " frozen" : "");
      EXPECT_GE(check_in_every_layout(spec, mode_of(round), what), 1);
      if (HasFatalFailure()) return;
    }
  }
}

// Sums split over several threads or blocks.
TEST_P(SimpleOperators, LargeBatchNormsAgreeWithTheReference) {
  const std::vector<BatchNormSpec> specs = {
      {.batch = 70, .shape = {3, 40, 40}, .activation = Activation::relu},
      {.batch = 35, .shape = {200, 7, 7}, .activation = Activation::relu, .add = true},
      {.batch = 300, .shape = {50, 1, 1}},
      {.batch = 33, .shape = {64, 14, 14}, .activation = Activation::relu6}};
  for (const BatchNormSpec& spec : specs) {
    EXPECT_GE(
        check_in_every_layout(spec, ChoiceMode::fixed, "large batch norm " + describe_shape(spec.batch, spec.shape)),
        1);
    if (HasFatalFailure()) return;
  }
}

TEST_P(SimpleOperators, BatchNormsRepeatTheirBits) {
  if (!GetParam().repeatable) GTEST_SKIP() << "this backend does not promise it";
  // On a GPU, sums of many blocks, which must not depend on which of them ends last.
  const BatchNormSpec spec{.batch = 40, .shape = {24, 16, 16}, .activation = Activation::relu};
  constexpr int kTurns = 5;
  for (const Layout layout : kLayouts) {
    if (!backend().ops().supports(spec, layout, layout)) continue;
    const auto op = backend().ops().make_op(
        spec, layout, layout, backend().chooser().choose(spec, layout, layout, ChoiceMode::fixed).kernels);
    DeviceActivation x(backend(), spec.batch, spec.shape, layout);
    DeviceActivation y(backend(), spec.batch, spec.shape, layout);
    DeviceActivation dx(backend(), spec.batch, spec.shape, layout);
    x.set(random_values(spec.batch * spec.shape.elements()), spec.batch);
    const DeviceArray<float> weight(backend(), std::vector<float>(24, 1.5F));
    const DeviceArray<float> gradient(backend(), std::vector<float>(24));
    const DeviceArray<float> statistics(backend(), std::vector<float>(48));
    const Memory saved = backend().memory().allocate(op->traits().saved_bytes, "a test's values");
    const Memory workspace = backend().memory().allocate(op->traits().workspace_bytes, "a test's values");
    const auto results = [&] {
      op->forward({.inputs = {x.data()},
                   .y = y.data(),
                   .parameters = {weight.data(), weight.data()},
                   .saved = saved.data(),
                   .workspace = workspace.data(),
                   .active = spec.batch,
                   .statistics = statistics.data()});
      op->backward({.inputs = {x.data()},
                    .y = y.data(),
                    .dy = x.data(),
                    .input_gradients = {dx.data()},
                    .parameters = {weight.data(), weight.data()},
                    .parameter_gradients = {gradient.data(), gradient.data()},
                    .saved = saved.data(),
                    .workspace = workspace.data(),
                    .active = spec.batch});
      return std::vector<std::vector<float>>{y.stored(), dx.stored(), gradient.get()};
    };
    const std::vector<std::vector<float>> first = results();
    for (int turn = 1; turn < kTurns; ++turn) EXPECT_EQ(results(), first) << to_string(layout);
  }
}

TEST_P(SimpleOperators, PointwiseFunctionsAgreeWithTheReference) {
  for (int round = 0; round < 6; ++round) {
    for (const PointwiseFunction function :
         {PointwiseFunction::silu, PointwiseFunction::hardswish, PointwiseFunction::hardsigmoid,
          PointwiseFunction::leaky_relu, PointwiseFunction::elu, PointwiseFunction::mish}) {
      const PointwiseSpec spec{
          .batch = random_between(1, 40), .shape = random_shape(), .function = function, .alpha = 0.25F};
      const std::string what = fmt::format("{}, {}", to_string(function), describe_shape(spec.batch, spec.shape));
      EXPECT_GE(check_in_every_layout(spec, mode_of(round), what), 2);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(SimpleOperators, PrelusAgreeWithTheReference) {
  for (int round = 0; round < 8; ++round) {
    const PreluSpec spec{.batch = random_between(1, 40),
                         .shape = round < 6 ? random_shape(37) : Shape{random_between(1, 300), 1, 1},
                         .shared = round % 2 == 0};
    const std::string what =
        fmt::format("prelu{}, {}", spec.shared ? ", one weight" : "", describe_shape(spec.batch, spec.shape));
    EXPECT_GE(check_in_every_layout(spec, mode_of(round), what), 2);
    if (HasFatalFailure()) return;
  }
}

TEST_P(SimpleOperators, ProductsAgreeWithTheReference) {
  for (int round = 0; round < 8; ++round) {
    const ProductSpec spec{.batch = random_between(1, 40),
                           .shape = round < 6 ? random_shape(37) : Shape{random_between(1, 300), 1, 1},
                           .per_channel = round % 2 == 0};
    const std::string what =
        fmt::format("product{}, {}", spec.per_channel ? " per channel" : "", describe_shape(spec.batch, spec.shape));
    EXPECT_GE(check_in_every_layout(spec, mode_of(round), what), 2);
    if (HasFatalFailure()) return;
  }
}

TEST_P(SimpleOperators, ConcatenationsAgreeWithTheReference) {
  for (int round = 0; round < 8; ++round) {
    const ConcatSpec spec{
        .batch = random_between(1, 40), .input = random_shape(9), .second_channels = random_between(1, 9)};
    const std::string what =
        fmt::format("concat of {} more, {}", spec.second_channels, describe_shape(spec.batch, spec.input));
    EXPECT_GE(check_in_every_layout(spec, mode_of(round), what), 2);
    if (HasFatalFailure()) return;
  }
}

TEST_P(SimpleOperators, SelectionsOfChannelsAgreeWithTheReference) {
  for (int round = 0; round < 8; ++round) {
    ChannelSelectSpec spec{.batch = random_between(1, 40), .input = random_shape(), .groups = random_between(1, 4)};
    spec.count = spec.groups * random_between(1, 4);
    spec.first = random_between(0, 3);
    spec.input.channels = spec.first + spec.count + random_between(0, 3);
    const std::string what = fmt::format("channels {} + {} in {} groups, {}", spec.first, spec.count, spec.groups,
                                         describe_shape(spec.batch, spec.input));
    EXPECT_GE(check_in_every_layout(spec, mode_of(round), what), 2);
    if (HasFatalFailure()) return;
  }
}

TEST_P(SimpleOperators, SumsAgreeWithTheReference) {
  for (int round = 0; round < 6; ++round) {
    for (const Activation activation : {Activation::none, Activation::relu, Activation::relu6}) {
      const AddSpec spec{.batch = random_between(1, 40), .shape = random_shape(), .activation = activation};
      const std::string what = fmt::format("sum, {} {}", describe_shape(spec.batch, spec.shape), to_string(activation));
      EXPECT_GE(check_in_every_layout(spec, mode_of(round), what), 2);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(SimpleOperators, ActivationsAgreeWithTheReference) {
  for (int round = 0; round < 6; ++round) {
    for (const Activation activation :
         {Activation::none, Activation::relu, Activation::relu6, Activation::sigmoid, Activation::tanh}) {
      const ActivationSpec spec{.batch = random_between(1, 40), .shape = random_shape(), .activation = activation};
      const std::string what = fmt::format("{}, {}", to_string(activation), describe_shape(spec.batch, spec.shape));
      EXPECT_GE(check_in_every_layout(spec, mode_of(round), what), 2);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(SimpleOperators, GeluAgreesWithTheReference) {
  for (int round = 0; round < 6; ++round) {
    for (const GeluForm form : {GeluForm::exact, GeluForm::tanh}) {
      const GeluSpec spec{.batch = random_between(1, 40), .shape = random_shape(), .form = form};
      const std::string what =
          fmt::format("GELU, {} tanh {}", describe_shape(spec.batch, spec.shape), form == GeluForm::tanh);
      EXPECT_GE(check_in_every_layout(spec, mode_of(round), what), 2);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(SimpleOperators, SoftmaxAgreesWithTheReference) {
  for (int round = 0; round < 6; ++round) {
    // Also more positions than are computed together.
    const SoftmaxSpec spec = round == 0 ? SoftmaxSpec{.batch = 3, .shape = {random_between(2, 70), 18, 19}}
                                        : SoftmaxSpec{.batch = random_between(1, 40), .shape = random_shape()};
    EXPECT_GE(check_in_every_layout(spec, mode_of(round), "softmax, " + describe_shape(spec.batch, spec.shape)), 2);
    if (HasFatalFailure()) return;
  }
}

TEST_P(SimpleOperators, ResponseNormsAgreeWithTheReference) {
  for (int round = 0; round < 10; ++round) {
    const LrnSpec spec{.batch = random_between(1, 40),
                       .shape = random_shape(12),
                       .size = random_between(1, 7),
                       .alpha = round % 2 == 0 ? 1e-4F : 0.5F,
                       .beta = round % 3 == 0 ? 0.6F : 0.75F,
                       .k = round % 4 == 0 ? 2.0F : 1.0F};
    const std::string what =
        fmt::format("response norm, {} size {} alpha {} beta {} k {}", describe_shape(spec.batch, spec.shape),
                    spec.size, spec.alpha, spec.beta, spec.k);
    EXPECT_GE(check_in_every_layout(spec, mode_of(round), what), 1);
    if (HasFatalFailure()) return;
  }
}

TEST_P(SimpleOperators, NormalisationsWithinSamplesAgreeWithTheReference) {
  for (int round = 0; round < 16; ++round) {
    SampleNormSpec spec;
    spec.batch = random_between(1, 40);
    spec.epsilon = round % 3 == 0 ? 0.25F : 1e-5F;
    // More positions than one tile of the kernels, and vectors; sets of one value have no variance.
    spec.shape = round % 8 == 6 ? Shape{random_between(2, 3), 23, 29} : random_shape(20);
    if (round % 8 == 7) spec.shape = Shape{random_between(2, 600), 1, 1};
    if (round % 2 == 1) {
      spec.over = NormOver::groups;
      spec.groups = round % 4 == 1 ? random_between(1, 5) : 1;
      spec.shape.channels *= spec.groups;
      if (round == 5) spec.groups = spec.shape.channels;
    }
    const std::string what = fmt::format("normalisation over {} ({}), {}", to_string(spec.over), spec.groups,
                                         describe_shape(spec.batch, spec.shape));
    EXPECT_GE(check_in_every_layout(spec, mode_of(round), what), 2);
    if (HasFatalFailure()) return;
  }
}

TEST_P(SimpleOperators, DropoutsAgreeWithTheReference) {
  for (int round = 0; round < 12; ++round) {
    const DropoutSpec spec{.batch = random_between(1, 40),
                           .shape = random_shape(20),
                           .rate = round % 4 == 0 ? 0.0F : 0.125F * static_cast<float>(random_between(1, 7)),
                           .stream = static_cast<std::uint32_t>(round),
                           .unit = static_cast<DropoutUnit>(round % 3)};
    const std::string what =
        fmt::format("dropout, {} rate {} stream {} of {} elements", describe_shape(spec.batch, spec.shape), spec.rate,
                    spec.stream, spec.unit_elements());
    EXPECT_GE(check_in_every_layout(spec, mode_of(round), what), 1);
    if (HasFatalFailure()) return;
  }
}

PoolSpec random_pool(PoolSpec::Kind kind) {
  PoolSpec s{.batch = random_between(1, 40),
             .input = {random_between(1, 20), random_between(4, 9), random_between(4, 9)},
             .kind = kind,
             .window = {.height = random_between(1, 4), .width = random_between(1, 4), .stride = random_between(1, 3)}};
  s.window.padding.top = random_between(0, s.window.height / 2);
  s.window.padding.left = random_between(0, s.window.width / 2);
  s.window.padding.bottom = random_between(0, s.window.height - 1);
  s.window.padding.right = random_between(0, s.window.width - 1);
  s.count_padding = random_between(0, 1) == 1;
  return s;
}

// Different strides, and taps apart.
PoolSpec random_dilated_pool(PoolSpec::Kind kind) {
  PoolSpec s{.batch = random_between(1, 20),
             .input = {random_between(1, 20), random_between(7, 11), random_between(7, 11)},
             .kind = kind,
             .window = {.height = random_between(1, 3),
                        .width = random_between(1, 3),
                        .stride = {random_between(1, 3), random_between(1, 3)},
                        .dilation = {random_between(1, 3), random_between(1, 3)}}};
  s.window.padding.top = random_between(0, s.window.rows() / 2);
  s.window.padding.left = random_between(0, s.window.columns() / 2);
  s.window.padding.bottom = random_between(0, s.window.rows() / 2);
  s.window.padding.right = random_between(0, s.window.columns() / 2);
  s.count_padding = random_between(0, 1) == 1;
  return s;
}

TEST_P(SimpleOperators, PoolsAgreeWithTheReference) {
  std::vector<PoolSpec> specs;
  for (const auto kind : {PoolSpec::Kind::average, PoolSpec::Kind::maximum}) {
    for (int round = 0; round < 10; ++round) specs.push_back(random_pool(kind));
    for (int round = 0; round < 10; ++round) specs.push_back(random_dilated_pool(kind));
    // Common cases: LeNet's windows, ResNet's overlapping ones, and global pooling.
    specs.push_back({.batch = 20, .input = {6, 8, 8}, .kind = kind});
    specs.push_back({.batch = 20, .input = {3, 9, 10}, .kind = kind, .window = square(3, 2, 1)});
    specs.push_back({.batch = 18, .input = {40, 7, 7}, .kind = kind, .window = square(7)});
    specs.push_back(
        {.batch = 3, .input = {2, 17, 18}, .kind = kind, .window = {.height = 17, .width = 18, .stride = 2}});
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const PoolSpec& s = specs[i];
    const std::string what =
        fmt::format("pool of {},{}", describe_shape(s.batch, s.input), Description().add(s.window).text());
    EXPECT_GE(check_in_every_layout(s, i == 0 ? ChoiceMode::timed : ChoiceMode::fixed, what), 2);
    if (HasFatalFailure()) return;
  }
}

// To fewer and to more rows and columns than the image has.
TEST_P(SimpleOperators, AdaptivePoolsAgreeWithTheReference) {
  for (int round = 0; round < 10; ++round) {
    const PoolSpec spec{.batch = random_between(1, 40),
                        .input = {random_between(1, 20), random_between(1, 9), random_between(1, 9)},
                        .adaptive_height = random_between(1, 12),
                        .adaptive_width = random_between(1, 12)};
    const std::string what = fmt::format("adaptive pool of {} to {}x{}", describe_shape(spec.batch, spec.input),
                                         spec.adaptive_height, spec.adaptive_width);
    EXPECT_GE(check_in_every_layout(spec, mode_of(round), what), 2);
    if (HasFatalFailure()) return;
  }
}

TEST_P(SimpleOperators, PadsAgreeWithTheReference) {
  for (int round = 0; round < 12; ++round) {
    PadSpec spec{.batch = random_between(1, 40),
                 .input = {random_between(1, 20), random_between(1, 7), random_between(1, 7)},
                 .padding = {},
                 .mode = round % 2 == 0 ? PadMode::reflect : PadMode::replicate};
    const std::int64_t rows = spec.mode == PadMode::reflect ? spec.input.height - 1 : 9;
    const std::int64_t columns = spec.mode == PadMode::reflect ? spec.input.width - 1 : 9;
    spec.padding = {random_between(0, rows), random_between(0, columns), random_between(0, rows),
                    random_between(0, columns)};
    const std::string what = fmt::format("pad {}, {},{},{},{}", describe_shape(spec.batch, spec.input),
                                         spec.padding.top, spec.padding.left, spec.padding.bottom, spec.padding.right);
    EXPECT_GE(check_in_every_layout(spec, mode_of(round), what), 2);
    if (HasFatalFailure()) return;
  }
}

TEST_P(SimpleOperators, ReordersAgreeWithTheReference) {
  for (int round = 0; round < 6; ++round) {
    const ReorderSpec spec{random_between(1, 40), random_shape()};
    EXPECT_GE(check_in_every_layout(spec, mode_of(round), "reorder, " + describe_shape(spec.batch, spec.shape)), 4);
    if (HasFatalFailure()) return;
  }
}

TEST_P(SimpleOperators, ChannelsLastVectorsAgreeWithTheReference) {
  for (int round = 0; round < 4; ++round) {
    const ChannelsLastSpec spec{random_between(1, 40), random_shape()};
    EXPECT_GE(check_in_every_layout(spec, mode_of(round), "to vector, " + describe_shape(spec.batch, spec.input)), 1);
    if (HasFatalFailure()) return;
  }
}

DDP_ON_EVERY_BACKEND(On, SimpleOperators);

}  // namespace
}  // namespace ddp
