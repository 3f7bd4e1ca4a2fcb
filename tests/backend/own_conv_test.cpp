// Which convolutions our own kernels take.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/cuda/conv/conv_mma.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/op_check.h"
#include "base/error.h"
#include "stand_ins/gpu/grid.h"

namespace ddp {
namespace {

TEST(StandInMmaChoice, LeavesTheRestToCudnn) {
  const ConvSpec taken{.batch = 4, .input = {16, 12, 12}, .output_channels = 8, .window = square(3)};
  EXPECT_TRUE(cuda::conv_mma_takes(taken, 1));
  std::vector<ConvSpec> others(5, taken);
  others[0].groups = 2;
  others[1].window.stride = 2;
  others[2].input.channels = 65;
  others[3].input.width = 4000;
  others[4].window.padding.top = 3;
  for (const ConvSpec& spec : others) EXPECT_FALSE(cuda::conv_mma_takes(spec, 1)) << describe(spec);
  const auto backend = make_cuda_backend({.precision = Precision::bf16});
  EXPECT_EQ(backend->chooser().choose(taken, Layout::nhwc, Layout::nhwc, ChoiceMode::fixed).kernels.substr(0, 8),
            "forward=");
  try {
    static_cast<void>(backend->ops().make_op(others[0], Layout::nhwc, Layout::nhwc, "mma"));
    ADD_FAILURE() << "kernels were taken that do not compute this";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::preflight);
  }
}

// cuDNN would pad these channels, so our kernel is faster without measuring.
TEST(StandInMmaChoice, IsTheFixedChoiceForOddChannels) {
  const ConvSpec spec{.batch = 4, .input = {20, 12, 12}, .output_channels = 50, .window = square(5)};
  const auto bf16 = make_cuda_backend({.precision = Precision::bf16, .deterministic = true});
  EXPECT_EQ(bf16->chooser().choose(spec, Layout::nhwc, Layout::nhwc, ChoiceMode::fixed).kernels, "mma");
  const auto fp32 = make_cuda_backend({});
  EXPECT_EQ(fp32->chooser().choose(spec, Layout::nhwc, Layout::nhwc, ChoiceMode::fixed).kernels.substr(0, 8),
            "forward=");
}

// What the threads of a warp hand in stays until all have read it, also while some hand in the next values.
TEST(StandInGrid, AWarpSeesWhatEachOfItsThreadsHandsIn) {
  constexpr unsigned kRounds = 5;
  std::vector<unsigned> sums(std::size_t{64} * kRounds);
  stand_in::run_grid(dim3(2), dim3(64), [&] {
    for (unsigned round = 0; round < kRounds; ++round) {
      const stand_in::Warp& all = stand_in::hand_in(threadIdx.x + round);
      unsigned sum = 0;
      for (unsigned lane = 0; lane < 32; ++lane) sum += all.of<unsigned>(lane);
      sums[threadIdx.x * kRounds + round] = sum;
    }
  });
  for (unsigned i = 0; i < 64; ++i) {
    for (unsigned round = 0; round < kRounds; ++round) {
      EXPECT_EQ(sums[i * kRounds + round], (i / 32 * 32 + round) * 32 + 31 * 32 / 2);
    }
  }
}

}  // namespace
}  // namespace ddp
