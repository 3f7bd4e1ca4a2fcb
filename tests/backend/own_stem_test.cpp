// First convolutions of networks on images of few channels by our own kernels, whatever the backend would choose.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cuda/conv/stem_conv.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/op_check.h"
#include "base/error.h"

namespace ddp {
namespace {

void check_stem(const ConvSpec& spec) {
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  ASSERT_TRUE(cuda::stem_conv_takes(spec)) << describe(spec);
  const auto op = backend->ops().make_op(spec, Layout::nhwc, Layout::nhwc, "stem");
  const std::int64_t active = random_between(spec.batch == 0 ? 0 : 1, spec.batch);
  check_op({*backend, *op, spec, Layout::nhwc, Layout::nhwc, active, 1e-2,
            fmt::format("{} active {}", describe(spec), active)});
}

ConvSpec random_stem() {
  ConvSpec s;
  s.batch = random_between(0, 5);
  s.window.height = random_between(1, 7);
  s.window.width = random_between(1, 7);
  s.window.stride = random_between(1, 3);
  s.input = {random_between(1, 4), random_between(7, 21), random_between(7, 35)};
  s.output_channels = 8 * random_between(1, 5);
  s.window.padding.top = random_between(0, s.window.height / 2);
  s.window.padding.left = random_between(0, s.window.width / 2);
  s.window.padding.bottom = random_between(0, s.window.height / 2);
  s.window.padding.right = random_between(0, s.window.width / 2);
  s.bias = random_between(0, 1) == 1;
  s.relu = s.bias && random_between(0, 1) == 1;
  s.input_gradient = false;
  return s;
}

TEST(StandInStem, ConvolutionsAgreeWithTheReference) {
  for (int i = 0; i < 16; ++i) {
    check_stem(random_stem());
    if (HasFatalFailure()) return;
  }
}

// Several bands with a smaller last one, outputs in several groups, large windows, pixels at odd places, those of networks.
TEST(StandInStem, LargeConvolutionsAgreeWithTheReference) {
  const std::vector<ConvSpec> specs = {
      {.batch = 2, .input = {3, 64, 64}, .output_channels = 64, .window = square(7, 2, 3), .bias = false},
      {.batch = 2, .input = {3, 48, 224}, .output_channels = 32, .window = square(3, 2, 1), .bias = false},
      {.batch = 1, .input = {3, 45, 225}, .output_channels = 32, .window = square(3, 2), .bias = true, .relu = true},
      {.batch = 2, .input = {3, 63, 63}, .output_channels = 96, .window = square(11, 4, 2), .relu = true},
      {.batch = 1, .input = {4, 20, 33}, .output_channels = 128, .window = square(11, 1, 5)},
      {.batch = 3, .input = {3, 32, 32}, .output_channels = 64, .window = square(3, 1, 1), .relu = true},
      {.batch = 40, .input = {1, 28, 28}, .output_channels = 8, .window = square(5)},
      {.batch = 600, .input = {1, 4, 4}, .output_channels = 16, .window = square(3, 1, 1)},
      {.batch = 2, .input = {2, 1, 9}, .output_channels = 24, .window = {.height = 1, .width = 9}}};
  for (ConvSpec spec : specs) {
    spec.input_gradient = false;
    check_stem(spec);
    if (HasFatalFailure()) return;
  }
}

TEST(StandInStem, LeavesTheRestToOthers) {
  const ConvSpec taken{.batch = 4,
                       .input = {3, 12, 12},
                       .output_channels = 8,
                       .window = square(3),
                       .relu = true,
                       .input_gradient = false};
  EXPECT_TRUE(cuda::stem_conv_takes(taken));
  std::vector<ConvSpec> others(9, taken);
  others[0].input.channels = 5;
  others[1].output_channels = 12;
  others[2].output_channels = 136;
  others[3].input_gradient = true;
  others[4].average_pool = true;
  others[5].window.dilation = 2;
  others[6].window.stride = {1, 2};
  others[7].input.width = 20000;
  others[8].window = square(12);
  for (const ConvSpec& spec : others) EXPECT_FALSE(cuda::stem_conv_takes(spec)) << describe(spec);
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  EXPECT_THROW(static_cast<void>(backend->ops().make_op(others[0], Layout::nhwc, Layout::nhwc, "stem")), Error);
  const auto fp32 = make_cuda_backend({});
  EXPECT_THROW(static_cast<void>(fp32->ops().make_op(taken, Layout::nhwc, Layout::nhwc, "stem")), Error);
}

// A plan by rules takes kernels that have run on a GPU.
TEST(StandInStem, IsChosenByTimingOnly) {
  const ConvSpec spec{.batch = 4,
                      .input = {3, 24, 24},
                      .output_channels = 16,
                      .window = square(3, 1, 1),
                      .relu = true,
                      .input_gradient = false};
  ASSERT_TRUE(cuda::stem_conv_takes(spec));
  const auto bf16 = make_cuda_backend({.precision = Precision::bf16, .deterministic = true});
  EXPECT_EQ(bf16->chooser().choose(spec, Layout::nhwc, Layout::nhwc, ChoiceMode::fixed).kernels, "mma");
}

}  // namespace
}  // namespace ddp
