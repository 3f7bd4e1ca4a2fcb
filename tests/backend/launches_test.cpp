// The kernels that operators start, counted on the stand-in GPU: as many as OpTraits::traffic says, and results that do not
// depend on the order in which blocks run.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "backend/cuda/conv/conv.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/pointwise/pointwise.h"
#include "backend/cuda/update/update.h"
#include "backend/device_values.h"
#include "backend/op_check.h"
#include "stand_ins/cuda/runtime.h"
#include "stand_ins/gpu/engines.h"

namespace ddp {
namespace {

std::int64_t started() {
  return static_cast<std::int64_t>(testing::enqueued("kernel") + testing::enqueued("convolution") +
                                   testing::enqueued("product"));
}

// One training pass on random values, with the packed weights where the operator takes them.
class Pass {
 public:
  // Several specs: of an operator that has joined them.
  Pass(Backend& backend, Op& op, const std::vector<OpSpec>& specs, Layout layout)
      : backend_(backend),
        op_(op),
        batch_(batch_of(specs.front())),
        x_(filled(input_of(specs.front()), layout)),
        x2_(filled(output_of(specs.back()), layout)),
        y_(filled(output_of(specs.back()), layout)),
        dy_(filled(output_of(specs.back()), layout)),
        dx_(filled(input_of(specs.front()), layout)),
        dx2_(filled(output_of(specs.back()), layout)),
        statistics_(backend, ones(specs)),
        saved_(memory(op.traits().saved_bytes)),
        workspace_(memory(op.traits().workspace_bytes)),
        packed_(memory(packed_bytes())),
        packed_gradient_(memory(packed_bytes())) {
    for (const OpSpec& spec : specs) {
      for (std::size_t p = 0; p < 3; ++p) {
        const std::int64_t count = parameter_elements(spec, p);
        if (count == 0) continue;
        parameters_.emplace_back(backend, random_floats(count));
        gradients_.emplace_back(backend, std::vector<float>(static_cast<std::size_t>(count)));
      }
    }
  }

  // Kernels started.
  std::int64_t forward() {
    ForwardArguments a{
        .inputs = {x_.data(), x2_.data()}, .y = y_.data(), .saved = bytes(saved_), .workspace = bytes(workspace_)};
    a.active = batch_;
    a.statistics = statistics_.data();
    if (op_.traits().packed_form) {
      a.packed = bytes(packed_);
      backend_.math().convert_weights(packing(parameters_[0], packed_), PackingDirection::pack);
    }
    const auto values = pointers<const float*>(parameters_);
    a.parameters = ArgumentList<const float*>(std::span<const float* const>(values));
    const std::int64_t before = started();
    op_.forward(a);
    return started() - before;
  }
  std::int64_t backward() {
    BackwardArguments a{.inputs = {x_.data(), x2_.data()},
                        .y = y_.data(),
                        .dy = dy_.data(),
                        .input_gradients = {dx_.data(), dx2_.data()}};
    a.saved = bytes(saved_);
    a.workspace = bytes(workspace_);
    a.active = batch_;
    if (op_.traits().packed_form) {
      a.packed = bytes(packed_);
      if (op_.traits().packed_form->packs_gradient()) a.packed_gradient = bytes(packed_gradient_);
    }
    const auto values = pointers<const float*>(parameters_);
    const auto results = pointers<float*>(gradients_);
    a.parameters = ArgumentList<const float*>(std::span<const float* const>(values));
    a.parameter_gradients = ArgumentList<float*>(std::span<float* const>(results));
    const std::int64_t before = started();
    op_.backward(a);
    return started() - before;
  }

  // Before another pass with the same results.
  void reset() { statistics_.set(std::vector<float>(statistics_.get().size(), 1.0F)); }
  // All results, bit by bit.
  std::vector<float> results() const {
    std::vector<float> all = y_.stored();
    std::vector<std::vector<float>> others = {dx_.stored(), dx2_.stored(), statistics_.get()};
    for (const DeviceArray<float>& gradient : gradients_) others.push_back(gradient.get());
    for (const std::vector<float>& more : others) all.insert(all.end(), more.begin(), more.end());
    return all;
  }

 private:
  static std::byte* bytes(const DeviceArray<std::uint8_t>& memory) {
    return static_cast<std::byte*>(static_cast<void*>(memory.data()));
  }
  DeviceArray<std::uint8_t> memory(std::size_t count) const {
    return {backend_, std::vector<std::uint8_t>(count, 0x7F)};
  }
  DeviceActivation filled(const Shape& shape, Layout layout) const {
    DeviceActivation values(backend_, batch_, shape, layout);
    values.set(random_values(batch_ * shape.elements()), batch_);
    return values;
  }
  static std::vector<float> ones(const std::vector<OpSpec>& specs) {
    std::int64_t count = 0;
    for (const OpSpec& spec : specs) count += statistic_elements(spec);
    return std::vector<float>(static_cast<std::size_t>(count), 1.0F);
  }
  std::size_t packed_bytes() const {
    const auto packed = op_.traits().packed_form;
    return packed ? static_cast<std::size_t>(packed->elements()) * bytes_of(backend_.ops().traits().activation_element)
                  : 0;
  }
  std::vector<WeightPacking> packing(const DeviceArray<float>& plain, const DeviceArray<std::uint8_t>& packed) const {
    return {{plain.data(), bytes(packed), *op_.traits().packed_form}};
  }

  Backend& backend_;
  Op& op_;
  std::int64_t batch_;
  DeviceActivation x_, x2_, y_, dy_, dx_, dx2_;
  DeviceArray<float> statistics_;
  DeviceArray<std::uint8_t> saved_, workspace_, packed_, packed_gradient_;
  std::vector<DeviceArray<float>> parameters_, gradients_;
};

struct Case {
  OpSpec spec;
  Layout layout = Layout::nhwc;
  std::string kernels = {};
};

// Engine 10 of the stand-in has no workspace, for which OpTraits::traffic counts a second kernel.
std::vector<Case> cases() {
  const std::string cudnn = "forward=cudnn.10 data=cudnn.10 adding=cudnn.10 weights=cudnn.10";
  const std::string own = "forward=own.depthwise data=own.depthwise adding=own.depthwise weights=own.depthwise";
  ConvSpec conv{.batch = 3, .input = {8, 6, 6}, .output_channels = 16, .window = square(3, 1, 1), .bias = false};
  std::vector<Case> all;
  all.push_back({conv, Layout::nhwc, cudnn});
  conv.bias = true;
  all.push_back({conv, Layout::nhwc, cudnn});
  conv.relu = true;
  all.push_back({conv, Layout::nhwc, cudnn});
  conv.average_pool = true;
  all.push_back({conv, Layout::nhwc, cudnn});
  all.push_back({ConvSpec{.batch = 2,
                          .input = {16, 6, 6},
                          .output_channels = 16,
                          .window = square(3, 2, 1),
                          .groups = 16,
                          .bias = false},
                 Layout::nhwc, own});
  for (const bool add : {false, true}) {
    for (const Layout layout : {Layout::nhwc, Layout::plain}) {
      all.push_back(
          {BatchNormSpec{.batch = 4, .shape = {16, 5, 5}, .activation = Activation::relu, .add = add}, layout});
    }
  }
  all.push_back({LinearSpec{.batch = 4, .inputs = 24, .outputs = 16, .relu = true}, Layout::plain});
  all.push_back({LinearSpec{.batch = 4, .inputs = 24, .outputs = 6}, Layout::plain});
  all.push_back({LinearSpec{.batch = 4, .inputs = 24, .outputs = 6, .relu = true}, Layout::nhwc, "mma"});
  all.push_back({ActivationSpec{.batch = 4, .shape = {8, 5, 5}, .activation = Activation::relu}, Layout::nhwc});
  return all;
}

TEST(StandInLaunches, AreAsManyAsAreSaid) {
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  for (const Case& c : cases()) {
    const auto op = backend->ops().make_op(c.spec, c.layout, c.layout, c.kernels);
    const OpTraffic said = op->traits().traffic.value_or(OpTraffic{{1, 0}, {1, 0}});
    Pass pass(*backend, *op, {c.spec}, c.layout);
    EXPECT_EQ(pass.forward(), said.forward.kernels) << describe(c.spec);
    EXPECT_EQ(pass.backward(), said.backward.kernels) << describe(c.spec);
  }
}

TEST(StandInLaunches, OfOwnConvolutionsToo) {
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  const ConvSpec spec{.batch = 3, .input = {5, 8, 8}, .output_channels = 7, .window = square(3), .relu = true};
  const auto op = backend->ops().make_op(spec, Layout::nhwc, Layout::nhwc, "mma");
  Pass pass(*backend, *op, {spec}, Layout::nhwc);
  EXPECT_EQ(pass.forward(), op->traits().traffic->forward.kernels);
  EXPECT_EQ(pass.backward(), op->traits().traffic->backward.kernels);
}

void expect_same_bits(Pass& pass, const std::string& what) {
  std::vector<float> first;
  for (int turn = 0; turn < 3; ++turn) {
    pass.reset();
    static_cast<void>(pass.forward());
    static_cast<void>(pass.backward());
    if (turn == 0) first = pass.results();
    EXPECT_EQ(pass.results(), first) << what;
  }
}

// A convolution of images, with chunks and groups of them, and several groups of outputs and columns.
ConvSpec stem_spec() {
  return {.batch = 190,
          .input = {3, 7, 9},
          .output_channels = 72,
          .window = square(7, 2, 3),
          .relu = true,
          .input_gradient = false};
}

TEST(StandInLaunches, OfFirstConvolutionsToo) {
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  const auto op = backend->ops().make_op(stem_spec(), Layout::nhwc, Layout::nhwc, "stem");
  Pass pass(*backend, *op, {stem_spec()}, Layout::nhwc);
  EXPECT_EQ(pass.forward(), op->traits().traffic->forward.kernels);
  EXPECT_EQ(pass.backward(), op->traits().traffic->backward.kernels);
  expect_same_bits(pass, describe(stem_spec()));
}

// Stages that one operator computes, in many chunks: a depthwise convolution between batch normalisations, in bf16 also with the
// 1x1 convolution in front of them; and 1x1 convolutions of whole slices of channels, with a normalisation behind and in front.
std::vector<std::vector<OpSpec>> joined_specs(std::int64_t side = 11) {
  const auto norm = [=](std::int64_t channels, bool add = false) {
    return BatchNormSpec{.batch = 4, .shape = {channels, side, side}, .activation = Activation::relu6, .add = add};
  };
  const auto conv = [=](std::int64_t inputs, std::int64_t outputs) {
    return ConvSpec{.batch = 4, .input = {inputs, side, side}, .output_channels = outputs, .bias = false};
  };
  return {{conv(128, 64), norm(64)}, {norm(64), conv(64, 128), norm(128, /*add=*/true)}};
}

TEST(StandInLaunches, OfJoinedOperatorsToo) {
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  for (const std::vector<OpSpec>& specs : joined_specs()) {
    const auto op = backend->ops().join(specs, Layout::nhwc);
    Pass pass(*backend, *op, specs, Layout::nhwc);
    EXPECT_EQ(pass.forward(), op->traits().traffic->forward.kernels) << describe(specs.back());
    EXPECT_EQ(pass.backward(), op->traits().traffic->backward.kernels) << describe(specs.back());
  }
}

// An operator is not timed unless it computes what separate ones do; here one of these does nothing.
TEST(StandInLaunches, JoinedOperatorsThatDifferFromSeparateOnesAreSkipped) {
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  const std::vector<OpSpec> specs = joined_specs(4).back();
  EXPECT_LT(backend->chooser().joined_seconds(specs, Layout::nhwc), 1e9);
  const stand_in::ProposeFirst proposed(stand_in::wrong_engine());
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(backend->chooser().joined_seconds(specs, Layout::nhwc), std::numeric_limits<double>::infinity());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("batchnorm to 64x4x4, conv to 128x4x4, batchnorm to 128x4x4 together"), std::string::npos) << log;
  EXPECT_NE(log.find("is skipped: its result differs from that of separate ones"), std::string::npos) << log;
}

// Before they are timed, own operators in fp32 and tf32 are compared with the library's.
TEST(StandInLaunches, OwnOperatorsAgreeWithTheLibrarys) {
  const LinearSpec linear{.batch = 4, .inputs = 40, .outputs = 6, .relu = true, .image = {10, 2, 2}};
  const ConvSpec conv{.batch = 4, .input = {6, 9, 9}, .output_channels = 8, .window = square(3), .relu = true};
  LinearSpec first_linear = linear;
  ConvSpec first_conv = conv;
  first_linear.input_gradient = first_conv.input_gradient = false;
  const std::vector<OpSpec> specs = {linear, conv, first_linear, first_conv};
  for (const Precision precision : {Precision::fp32, Precision::tf32}) {
    const auto backend = make_cuda_backend({.precision = precision});
    ::testing::internal::CaptureStderr();
    for (const OpSpec& spec : specs) {
      EXPECT_LT(backend->chooser().choose(spec, Layout::nhwc, Layout::nhwc, ChoiceMode::timed).seconds, 1.0);
    }
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("our own operator"), std::string::npos) << log;
  }
}

// Blocks run in a new random order each time: the one that adds up what all of them have left must not matter. 6,400 rows
// are many chunks.
TEST(StandInLaunches, SumsDoNotDependOnTheOrderOfBlocks) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const auto backend = make_cuda_backend({.precision = precision});
    for (const std::int64_t channels : {3, 24, 72}) {
      for (const Layout layout : {Layout::nhwc, Layout::plain}) {
        const BatchNormSpec spec{
            .batch = 25, .shape = {channels, 16, 16}, .activation = Activation::relu6, .add = channels == 24};
        const auto op = backend->ops().make_op(spec, layout, layout, "");
        Pass pass(*backend, *op, {spec}, layout);
        expect_same_bits(pass, fmt::format("{} {}", describe(spec), to_string(layout)));
      }
    }
    if (precision != Precision::bf16) continue;
    for (const std::vector<OpSpec>& specs : joined_specs()) {
      const auto op = backend->ops().join(specs, Layout::nhwc);
      Pass pass(*backend, *op, specs, Layout::nhwc);
      expect_same_bits(pass, describe(specs.back()));
    }
  }
}

// The same for our own convolutions, with chunks and groups of them, and several groups of channels and units.
TEST(StandInLaunches, SumsOfOwnConvolutionsNeither) {
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  for (const ConvSpec& spec :
       {ConvSpec{.batch = 150, .input = {9, 6, 6}, .output_channels = 70, .window = square(3), .relu = true},
        ConvSpec{.batch = 3, .input = {2, 6, 6}, .output_channels = 5, .window = square(2)}}) {
    const auto op = backend->ops().make_op(spec, Layout::nhwc, Layout::nhwc, "mma");
    Pass pass(*backend, *op, {spec}, Layout::nhwc);
    expect_same_bits(pass, describe(spec));
  }
}

// More tensors than one kernel takes, and one whose taps do not fit into a tile.
TEST(StandInLaunches, WeightsOfAllOperatorsAreConvertedAtOnce) {
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  std::vector<PackedShape> shapes;
  for (std::size_t i = 0; i < cuda::kPackedAtOnce + 6; ++i) {
    shapes.push_back({random_between(1, 5), random_between(1, 70), random_between(0, 2) == 0 ? 1 : 9});
  }
  shapes.push_back({2, 3, 4609});
  shapes.push_back({0, 3, 9});
  std::vector<DeviceArray<float>> plain, back, widened;
  std::vector<DeviceArray<std::uint16_t>> packed;
  std::vector<WeightPacking> to, from;
  std::vector<std::vector<float>> weights, expected;
  for (const PackedShape& s : shapes) {
    const auto count = static_cast<std::size_t>(s.elements());
    std::vector<float> values(count);
    std::vector<float> turned(count);
    for (float& value : values) value = static_cast<float>(random_between(0, 255));  // exact in bf16
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t tap = at % s.taps;
      const std::int64_t channel = at / s.taps % s.channels;
      turned[static_cast<std::size_t>((at / s.taps / s.channels * s.taps + tap) * s.channels + channel)] = values[i];
    }
    plain.emplace_back(*backend, values);
    back.emplace_back(*backend, std::vector<float>(count));
    widened.emplace_back(*backend, std::vector<float>(count));
    packed.emplace_back(*backend, std::vector<std::uint16_t>(count));
    auto* place = static_cast<std::byte*>(static_cast<void*>(packed.back().data()));
    to.push_back({plain.back().data(), place, s});
    from.push_back({back.back().data(), place, s});
    weights.push_back(std::move(values));
    expected.push_back(std::move(turned));
  }
  const std::size_t before = testing::enqueued("kernel");
  backend->math().convert_weights(to, PackingDirection::pack);
  EXPECT_EQ(testing::enqueued("kernel") - before, 3U);
  backend->math().convert_weights(from, PackingDirection::unpack);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    backend->math().copy(widened[i].data(), ConstActivations(packed[i].data(), Element::bf16), weights[i].size());
    EXPECT_EQ(widened[i].get(), expected[i]) << i;
    EXPECT_EQ(back[i].get(), weights[i]) << i;
  }
}

// The kernel that loads the images packs the weights too, up to as many as it takes.
TEST(StandInLaunches, WeightsArePackedWhileImagesAreLoaded) {
  const Shape image{3, 5, 4};
  const InputSpec input{4, image, image, {1.0F, 0.5F, 2.0F}, {0.0F, 1.0F, 0.0F}};
  for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    const auto backend = make_cuda_backend({.precision = precision});
    const Element element = backend->ops().traits().activation_element;
    std::vector<std::uint8_t> bytes(4 * 60);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random_between(0, 255));
    const DeviceArray<std::uint8_t> pixels(*backend, bytes);
    for (const std::size_t count : {std::size_t{0}, std::size_t{5}, cuda::kPackedAtOnce + 1}) {
      std::vector<DeviceArray<float>> plain;
      std::vector<DeviceArray<std::byte>> apart, beside;
      std::vector<WeightPacking> to_apart, to_beside;
      for (std::size_t i = 0; i < count; ++i) {
        PackedShape shape{random_between(1, 20), random_between(1, 70), i % 2 == 0 ? 1 : 9};
        if (precision == Precision::bf16 && i % 3 > 0)
          shape.form = i % 3 == 1 ? PackedForm::fragments : PackedForm::fragments_twice;
        plain.emplace_back(*backend, random_floats(shape.weights()));
        const std::vector<std::byte> none(static_cast<std::size_t>(shape.elements()) * bytes_of(element));
        apart.emplace_back(*backend, none);
        beside.emplace_back(*backend, none);
        to_apart.push_back({plain.back().data(), apart.back().data(), shape});
        to_beside.push_back({plain.back().data(), beside.back().data(), shape});
      }
      backend->math().convert_weights(to_apart, PackingDirection::pack);
      DeviceActivation alone(*backend, 4, image, Layout::nhwc);
      DeviceActivation x(*backend, 4, image, Layout::nhwc);
      const auto op = backend->ops().make_op(input, Layout::nhwc, Layout::nhwc, "");
      InputArguments images{.pixels = pixels.data()};
      op->forward({.y = alone.data(), .active = 3, .images = &images});
      const std::size_t before = testing::enqueued("kernel");
      images.weights = to_beside;
      op->forward({.y = x.data(), .active = 3, .images = &images});
      EXPECT_EQ(testing::enqueued("kernel") - before, count > cuda::kPackedAtOnce ? 3U : 1U);
      EXPECT_EQ(x.stored(), alone.stored());
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(beside[i].get(), apart[i].get()) << i << " of " << count;
    }
  }
}

}  // namespace
}  // namespace ddp
