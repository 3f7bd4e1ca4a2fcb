// Convolutions with our own kernels, whatever the backend would choose.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/cuda/conv_mma.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/op_check.h"
#include "base/error.h"
#include "stand_ins/gpu/grid.h"

namespace ddp {
namespace {

void check_mma(const ConvSpec& spec) {
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  ASSERT_TRUE(cuda::conv_mma_takes(spec)) << describe(spec);
  const auto op = backend->ops().make_op(spec, Layout::nhwc, Layout::nhwc, "mma");
  const std::int64_t active = random_between(spec.batch == 0 ? 0 : 1, spec.batch);
  check_op({*backend, *op, spec, Layout::nhwc, Layout::nhwc, active, 1e-2,
            fmt::format("{} active {}", describe(spec), active)});
}

// Random small convolutions, where supported.
TEST(StandInMma, ConvolutionsAgreeWithTheReference) {
  for (int taken = 0; taken < 12;) {
    const ConvSpec spec = random_conv(2, 1);
    if (!cuda::conv_mma_takes(spec)) continue;
    ++taken;
    check_mma(spec);
    if (HasFatalFailure()) return;
  }
}

// Images in several bands, channels in several blocks with a smaller last one, large windows.
TEST(StandInMma, LargeConvolutionsAgreeWithTheReference) {
  const std::vector<ConvSpec> specs = {
      {.batch = 2,
       .input = {20, 34, 30},
       .output_channels = 9,
       .window = square(3),
       .relu = true,
       .average_pool = true},
      {.batch = 3, .input = {33, 9, 9}, .output_channels = 99, .window = square(3, 1, 1), .bias = false},
      {.batch = 2,
       .input = {3, 41, 37},
       .output_channels = 64,
       .window = square(7, 2, 3),
       .relu = true,
       .input_gradient = false},
      {.batch = 2, .input = {3, 30, 40}, .output_channels = 5, .window = square(5), .relu = true},
      {.batch = 300,
       .input = {1, 5, 5},
       .output_channels = 20,
       .window = square(2),
       .relu = true,
       .average_pool = true}};
  for (const ConvSpec& spec : specs) {
    check_mma(spec);
    if (HasFatalFailure()) return;
  }
}

TEST(StandInMma, LeavesTheRestToCudnn) {
  const ConvSpec taken{.batch = 4, .input = {16, 12, 12}, .output_channels = 8, .window = square(3)};
  EXPECT_TRUE(cuda::conv_mma_takes(taken));
  std::vector<ConvSpec> others(5, taken);
  others[0].groups = 2;
  others[1].window.stride = 2;
  others[2].input.channels = 65;
  others[3].input.width = 4000;
  others[4].window.padding.top = 3;
  for (const ConvSpec& spec : others) EXPECT_FALSE(cuda::conv_mma_takes(spec)) << describe(spec);
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  EXPECT_EQ(backend->ops().choose(taken, Layout::nhwc, Layout::nhwc, ChoiceMode::fixed).kernels.substr(0, 8),
            "forward=");
  try {
    static_cast<void>(backend->ops().make_op(others[0], Layout::nhwc, Layout::nhwc, "mma"));
    ADD_FAILURE() << "kernels were taken that do not compute this";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::preflight);
  }
}

// cuDNN would pad these channels, so our kernel is faster without measuring.
TEST(StandInMma, IsTheFixedChoiceForOddChannels) {
  const ConvSpec spec{.batch = 4, .input = {20, 12, 12}, .output_channels = 50, .window = square(5)};
  const auto bf16 = make_cuda_backend({.precision = Precision::bf16, .deterministic = true});
  EXPECT_EQ(bf16->ops().choose(spec, Layout::nhwc, Layout::nhwc, ChoiceMode::fixed).kernels, "mma");
  const auto fp32 = make_cuda_backend({});
  EXPECT_EQ(fp32->ops().choose(spec, Layout::nhwc, Layout::nhwc, ChoiceMode::fixed).kernels.substr(0, 8), "forward=");
}

// Data that the threads of a warp share stays valid until all have read it.
TEST(StandInGrid, AWarpSeesWhatEachOfItsThreadsPointsTo) {
  std::vector<unsigned> sums(64);
  stand_in::run_grid(dim3(2), dim3(64), [&] {
    unsigned mine = threadIdx.x;
    stand_in::with_warp(&mine, [&](const stand_in::Warp& all) {
      sums[threadIdx.x] = 0;
      for (const void* other : all) sums[threadIdx.x] += *static_cast<const unsigned*>(other);
    });
    mine = 0;
  });
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(sums[i], (i / 32 * 32) * 32 + 31 * 32 / 2);
}

}  // namespace
}  // namespace ddp
