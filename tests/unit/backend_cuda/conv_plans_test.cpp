// Plans for a GPU that exists only as a description; h100.json is what cuDNN reports for an NVIDIA H100. A plan is a
// choice of kernel and workspace; only a real GPU shows that it runs and what it computes. Kernels that are compiled at
// run time are not planned here, because that takes a driver; see compiled_plans_test.cpp.
#include "backend/cuda/vendor/conv_plans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/candidates/op_set.h"
#include "base/error.h"
#include "model/stages.h"
#include "model/zoo.h"

namespace ddp::cuda {
namespace {

std::mt19937_64& generator() {
  static std::mt19937_64 engine{std::random_device{}()};
  return engine;
}

std::int64_t random_between(std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(generator());
}

constexpr std::array<Precision, 3> kPrecisions = {Precision::fp32, Precision::tf32, Precision::bf16};
constexpr std::array<ConvDirection, 3> kDirections = {ConvDirection::forward, ConvDirection::data,
                                                      ConvDirection::weights};

class ConvPlans : public testing::Test {
 protected:
  ConvPlans() : gpu_(describe_gpu(read(DDP_GPU_JSON))), target_{nullptr, &gpu_} {}

  static std::string read(const char* path) {
    std::ifstream file(path);
    EXPECT_TRUE(file.is_open()) << path;
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Every direction must have a plan that fulfils the requested precision and determinism.
  void expect_plans(const ConvSpec& spec, Precision precision, bool deterministic, const std::string& what) {
    for (const ConvDirection direction : kDirections) {
      if (direction == ConvDirection::data && !spec.input_gradient) continue;
      const ConvGraph graph({spec, direction, precision}, target_);
      const PlanLimits limits{.deterministic = deterministic};
      const std::vector<ConvPlan> plans = conv_plans(graph, precision, limits);
      EXPECT_FALSE(plans.empty()) << what << " direction " << static_cast<int>(direction) << " " << name_of(precision)
                                  << (deterministic ? " deterministic" : "");
    }
  }

  Descriptor gpu_;
  PlanTarget target_;
};

// The convolutions of a model for this image shape; empty if the model rejects it.
std::vector<ConvSpec> convolutions_of(const std::string& model, const Shape& image) {
  std::vector<ConvSpec> found;
  try {
    for (const Stage& stage : make_stages(make_model(model, image, 10), 32)) {
      const auto* conv = std::get_if<ConvSpec>(&stage.spec);
      if (conv == nullptr) continue;
      found.push_back(*conv);
      found.back().relu = found.back().average_pool = false;
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage) << model << ": " << error.what();
  }
  return found;
}

// On small images, or ImageNet's size for models that require it. Deterministic engines can also be used if determinism
// is not requested.
TEST_F(ConvPlans, EveryConvolutionOfEveryModelHasOne) {
  std::vector<ConvSpec> tried;
  for (const std::string& model : model_names()) {
    bool any = false;
    for (const Shape image : {Shape{1, 28, 28}, Shape{3, 32, 32}, Shape{3, 227, 227}}) {
      if (any && image.height > 32) continue;
      for (const ConvSpec& conv : convolutions_of(model, image)) {
        any = true;
        if (std::find(tried.begin(), tried.end(), conv) != tried.end()) continue;
        tried.push_back(conv);
        for (const Precision precision : kPrecisions) {
          expect_plans(conv, precision, true,
                       fmt::format("{}: {}x{}x{} to {} in {} groups", model, conv.input.channels, conv.input.height,
                                   conv.input.width, conv.output_channels, conv.groups));
        }
      }
    }
    EXPECT_TRUE(any) << model;
  }
}

ConvSpec square_conv(std::int64_t batch, std::int64_t channels, std::int64_t size, std::int64_t outputs,
                     std::int64_t kernel, std::int64_t stride, std::int64_t groups = 1) {
  const std::int64_t pad = kernel / 2;
  return {.batch = batch,
          .input = {channels, size, size},
          .output_channels = outputs,
          .window = square(kernel, stride, pad),
          .groups = groups,
          .bias = false};
}

// All kinds of convolutions of ResNet-18 and ResNet-50 (He et al., 2016) on 224 x 224 images, as input channels, size,
// output channels, kernel, stride: the stem, then all kinds in the first and the last group of blocks.
TEST_F(ConvPlans, ThoseOfResidualNetworksHaveOne) {
  constexpr std::array<std::array<std::int64_t, 5>, 14> kShapes = {{{3, 224, 64, 7, 2},
                                                                    {64, 56, 64, 3, 1},
                                                                    {64, 56, 128, 3, 2},
                                                                    {64, 56, 128, 1, 2},
                                                                    {256, 14, 512, 3, 2},
                                                                    {512, 7, 512, 3, 1},
                                                                    {64, 56, 64, 1, 1},
                                                                    {64, 56, 256, 1, 1},
                                                                    {256, 56, 64, 1, 1},
                                                                    {128, 56, 128, 3, 2},
                                                                    {256, 56, 512, 1, 2},
                                                                    {1024, 14, 2048, 1, 2},
                                                                    {512, 7, 2048, 1, 1},
                                                                    {2048, 7, 512, 1, 1}}};
  for (const auto& [channels, size, outputs, kernel, stride] : kShapes) {
    ConvSpec s = square_conv(64, channels, size, outputs, kernel, stride);
    s.input_gradient = channels > 3;
    // Deterministic engines can also be used if determinism is not requested.
    for (const Precision precision : kPrecisions) {
      expect_plans(s, precision, true, fmt::format("{} to {} of {}", channels, outputs, size));
    }
  }
}

// Depthwise convolutions, as in MobileNetV2 (Sandler et al., 2018) on 224 x 224 and on small images, and grouped ones,
// as in ResNeXt and AlexNet.
TEST_F(ConvPlans, GroupedOnesHaveOne) {
  std::vector<ConvSpec> specs;
  for (const auto& [channels, size, stride] : {std::array<std::int64_t, 3>{32, 112, 1},
                                               {96, 112, 2},
                                               {144, 56, 2},
                                               {192, 28, 2},
                                               {384, 14, 1},
                                               {576, 14, 2},
                                               {960, 7, 1},
                                               {32, 32, 1},
                                               {144, 16, 2},
                                               {960, 4, 1}}) {
    specs.push_back(square_conv(64, channels, size, channels, 3, stride, channels));
  }
  specs.push_back(square_conv(32, 128, 56, 128, 3, 1, 32));
  specs.push_back(square_conv(32, 1024, 14, 1024, 3, 2, 32));
  specs.push_back(square_conv(32, 96, 27, 256, 5, 1, 2));
  specs.push_back(square_conv(7, 9, 13, 12, 3, 1, 3));
  specs.push_back(square_conv(5, 8, 9, 24, 3, 2, 8));
  for (const ConvSpec& spec : specs) {
    for (const Precision precision : kPrecisions) {
      expect_plans(spec, precision, true,
                   fmt::format("{} to {} of {} in {} groups", spec.input.channels, spec.output_channels,
                               spec.input.height, spec.groups));
    }
  }
}

// Odd shapes with different paddings on opposite sides, some of them grouped.
TEST_F(ConvPlans, RandomConvolutionsHaveOne) {
  for (int round = 0; round < 20; ++round) {
    ConvSpec s;
    s.batch = random_between(1, 40);
    s.window.height = random_between(1, 5);
    s.window.width = random_between(1, 5);
    s.groups = round % 3 == 0 ? random_between(2, 7) : 1;
    s.input = {s.groups * random_between(1, 70 / s.groups), random_between(6, 33), random_between(6, 33)};
    s.output_channels = s.groups * random_between(1, 130 / s.groups);
    s.window.stride = random_between(1, 2);
    s.window.padding.top = random_between(0, s.window.height / 2);
    s.window.padding.left = random_between(0, s.window.width / 2);
    s.window.padding.bottom = random_between(0, s.window.height / 2);
    s.window.padding.right = random_between(0, s.window.width / 2);
    for (const Precision precision : kPrecisions) {
      expect_plans(s, precision, round % 2 == 0,
                   fmt::format("{} x {}x{}x{} -> {} in {} groups kernel {}x{} stride {} pads {}{}{}{}", s.batch,
                               s.input.channels, s.input.height, s.input.width, s.output_channels, s.groups,
                               s.window.height, s.window.width, s.window.stride.vertical, s.window.padding.top,
                               s.window.padding.left, s.window.padding.bottom, s.window.padding.right));
    }
  }
}

constexpr ConvSpec kSample{.batch = 32, .input = {20, 12, 12}, .output_channels = 50, .window = square(5)};

// Other ranks rebuild rank 0's choice from its name.
TEST_F(ConvPlans, APlanIsRebuiltFromItsName) {
  int with_knobs = 0;
  for (const Precision precision : kPrecisions) {
    for (const ConvDirection direction : kDirections) {
      const ConvGraph graph({kSample, direction, precision}, target_);
      const std::vector<ConvPlan> plans = conv_plans(graph, precision, {.most = 1000});
      EXPECT_GE(plans.size(), 3U);
      for (const ConvPlan& plan : plans) {
        const ConvGraph elsewhere({kSample, direction, precision}, target_);
        const ConvPlan again(elsewhere, EngineChoice::from_text(plan.choice().text()));
        EXPECT_EQ(again.choice().text(), plan.choice().text());
        EXPECT_EQ(again.workspace_bytes(), plan.workspace_bytes()) << plan.choice().text();
        with_knobs += plan.choice().knobs.empty() ? 0 : 1;
      }
    }
  }
  EXPECT_GT(with_knobs, 0);
}

TEST_F(ConvPlans, AnUnknownEngineIsAnErrorAboutTheMachine) {
  const ConvGraph graph({kSample, ConvDirection::forward, Precision::fp32}, target_);
  try {
    const ConvPlan plan(graph, EngineChoice::from_text("cudnn.99999"));
    FAIL() << "engine 99999 was planned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::preflight);
    EXPECT_NE(std::string(error.what()).find("cudnn.99999"), std::string::npos) << error.what();
  }
}

TEST_F(ConvPlans, Fp32LeavesOutTensorCores) {
  const ConvGraph graph({kSample, ConvDirection::forward, Precision::tf32}, target_);
  int on_tensor_cores = 0;
  for (const Descriptor& config : graph.engine_configs(CUDNN_HEUR_MODE_A)) {
    const EngineNotes notes = notes_of(config);
    on_tensor_cores += notes.tensor_core ? 1 : 0;
    EXPECT_TRUE(!notes.tensor_core || !engine_allowed(notes, Precision::fp32, false));
  }
  EXPECT_GT(on_tensor_cores, 0);
}

TEST_F(ConvPlans, WorkspacesAreLimited) {
  const ConvGraph graph({kSample, ConvDirection::data, Precision::bf16}, target_);
  const std::vector<ConvPlan> all = conv_plans(graph, Precision::bf16, {.most = 1000});
  const auto within = [&](std::size_t limit) {
    return std::count_if(all.begin(), all.end(), [&](const ConvPlan& p) { return p.workspace_bytes() <= limit; });
  };
  const std::size_t limit = all.front().workspace_bytes();
  for (const std::size_t workspace : {std::size_t{0}, limit}) {
    const std::vector<ConvPlan> plans = conv_plans(graph, Precision::bf16, {.workspace = workspace, .most = 1000});
    EXPECT_EQ(static_cast<std::int64_t>(plans.size()), within(workspace));
    EXPECT_GT(plans.size(), 0U);
    for (const ConvPlan& plan : plans) EXPECT_LE(plan.workspace_bytes(), workspace);
  }
  EXPECT_LT(within(0), within(limit));
}

TEST(EngineNotesTest, DecideWhatARunMayUse) {
  const auto allowed = [](const EngineNotes& notes, Precision precision, bool deterministic) {
    return engine_allowed(notes, precision, deterministic);
  };
  for (const Precision precision : kPrecisions) {
    EXPECT_TRUE(allowed({}, precision, true));
    EXPECT_TRUE(allowed({.nondeterministic = true}, precision, false));
    EXPECT_FALSE(allowed({.nondeterministic = true}, precision, true));
    EXPECT_FALSE(allowed({.reduced_sums = true}, precision, false));
    EXPECT_FALSE(allowed({.rough_winograd = true}, precision, false));
    EXPECT_EQ(allowed({.fft = true}, precision, false), precision != Precision::fp32);
    EXPECT_EQ(allowed({.winograd_4x4 = true}, precision, false), precision != Precision::fp32);
    EXPECT_EQ(allowed({.tensor_core = true}, precision, false), precision != Precision::fp32);
    EXPECT_EQ(allowed({.down_converts = true}, precision, false), precision != Precision::fp32);
  }
}

TEST(ConvKernelsText, GoesThereAndBack) {
  for (const bool input_gradient : {true, false}) {
    const ConvKernels kernels{{28, {}}, {58, {{2, 5}, {13, 64}}}, {1, {{12, -1}}}};
    const std::string text = to_text(kernels, input_gradient);
    EXPECT_EQ(text, input_gradient ? "forward=cudnn.28 data=cudnn.58,2:5,13:64 weights=cudnn.1,12:-1"
                                   : "forward=cudnn.28 weights=cudnn.1,12:-1");
    EXPECT_EQ(to_text(conv_kernels_from_text(text, input_gradient), input_gradient), text);
  }
}

TEST(ConvKernelsText, NamesTheKernelThatAdds) {
  const ConvKernels kernels{
      .forward = {28, {}}, .data = {58, {}}, .weights = {1, {}}, .adding = EngineChoice{58, {{2, 5}}}};
  const std::string text = "forward=cudnn.28 data=cudnn.58 adding=cudnn.58,2:5 weights=cudnn.1";
  EXPECT_EQ(to_text(kernels, true), text);
  EXPECT_EQ(to_text(conv_kernels_from_text(text, true), true), text);
  EXPECT_EQ(to_text(kernels, false), "forward=cudnn.28 weights=cudnn.1");
  // Plans of earlier versions name none.
  EXPECT_FALSE(conv_kernels_from_text("forward=cudnn.28 data=cudnn.58 weights=cudnn.1", true).adding);
}

TEST(ConvKernelsText, NamesKernelsOfOurOwn) {
  const std::string text = "forward=own.depthwise data=cudnn.58,2:5 weights=own.depthwise";
  const ConvKernels kernels = conv_kernels_from_text(text, true);
  EXPECT_TRUE(kernels.forward.depthwise);
  EXPECT_FALSE(kernels.data.depthwise);
  EXPECT_EQ(to_text(kernels, true), text);
}

TEST(ConvKernelsText, WhatIsNoneIsRefused) {
  for (const char* text :
       {"", "forward=own.pointwise data=cudnn.1 weights=cudnn.1", "forward=cudnn.28", "forward=cudnn.28 data=cudnn.1",
        "forward=onednn.any data=cudnn.1 weights=cudnn.1", "forward=cudnn. data=cudnn.1 weights=cudnn.1",
        "forward=cudnn.2x data=cudnn.1 weights=cudnn.1", "forward=cudnn.2,3 data=cudnn.1 weights=cudnn.1",
        "xforward=cudnn.2 data=cudnn.1 weights=cudnn.1", "forward=cudnn.2,:1 data=cudnn.1 weights=cudnn.1"}) {
    try {
      static_cast<void>(conv_kernels_from_text(text, true));
      ADD_FAILURE() << "'" << text << "' was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::preflight) << text;
    }
  }
}

}  // namespace
}  // namespace ddp::cuda
