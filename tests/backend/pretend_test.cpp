// What only a pretend GPU can show: kernels that would spoil a run, and a library that computes wrong.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/cuda/conv_plans.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/pretend_gpu/engines.h"
#include "backend/pretend_gpu/grid.h"
#include "base/error.h"

namespace ddp {
namespace {

constexpr ConvSpec kSpec{.batch = 3, .input = {2, 6, 6}, .output_channels = 4, .kernel_h = 3, .kernel_w = 3};

cuda::ConvKernels chosen(const GpuBackendConfig& config, ChoiceMode mode) {
  const auto backend = make_cuda_backend(config);
  return cuda::conv_kernels_from_text(backend->choose(kSpec, Layout::nhwc, Layout::nhwc, mode).kernels, true);
}

TEST(PretendChoice, TheFastestIsNotTakenWhereItComputesWrong) {
  for (const GpuPrecision precision : {GpuPrecision::fp32, GpuPrecision::tf32, GpuPrecision::bf16}) {
    const cuda::ConvKernels kernels = chosen({.precision = precision}, ChoiceMode::timed);
    for (const cuda::EngineChoice& choice : {kernels.forward, kernels.data, kernels.weights}) {
      EXPECT_NE(choice.engine, pretend::wrong_engine());
    }
  }
}

TEST(PretendChoice, TheFixedRuleTakesTheFirst) {
  const cuda::ConvKernels kernels = chosen({}, ChoiceMode::fixed);
  for (const cuda::EngineChoice& choice : {kernels.forward, kernels.data, kernels.weights}) {
    EXPECT_EQ(choice.text(), "cudnn.11,2:3,13:-1");
  }
}

TEST(PretendMemory, ACapIsKept) {
  const auto backend = make_cuda_backend({.memory_limit = std::size_t{2} << 30U});
  const std::size_t most = backend->available_bytes();
  EXPECT_LT(most, std::size_t{2} << 30U);
  EXPECT_GT(most, std::size_t{1} << 29U);
  const Memory some = backend->allocate(1000, "the test values");
  EXPECT_EQ(backend->available_bytes(), most - 1000);
  EXPECT_THROW(static_cast<void>(backend->allocate(most - 999, "the test values")), Error);
  EXPECT_EQ(backend->available_bytes(), most - 1000);
}

TEST(PretendGpu, AGpuThatIsNotThereIsNamed) {
  try {
    static_cast<void>(make_cuda_backend({.ordinal = 3}));
    FAIL() << "GPU 3 of 1 was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::preflight);
    EXPECT_NE(std::string(error.what()).find("there is no GPU 3: 1 visible"), std::string::npos) << error.what();
  }
  EXPECT_EQ(visible_gpus().at(0).pci_id, "0000:0a:00.0");
  EXPECT_EQ(make_cuda_backend({.precision = GpuPrecision::bf16})->description().substr(0, 23),
            "Pretend GPU, bf16, CUDA");
}

// The grid itself: every thread of every block once, sums over blocks through barriers, exchanges within warps.
TEST(PretendGrid, RunsEveryThreadOnce) {
  std::vector<int> runs(3 * 2 * 8 * 4);
  pretend::run_grid(dim3(3, 2), dim3(8, 4),
                    [&] { ++runs[((blockIdx.y * 3 + blockIdx.x) * 4 + threadIdx.y) * 8 + threadIdx.x]; });
  EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
}

TEST(PretendGrid, BarriersAndExchangesHoldThreadsTogether) {
  std::vector<unsigned> values(64);
  std::vector<unsigned> result(64);
  pretend::run_grid(dim3(5), dim3(64), [&] {
    values[threadIdx.x] = threadIdx.x;
    __syncthreads();
    const unsigned opposite = values[63 - threadIdx.x];
    result[threadIdx.x] = opposite * 100 + __shfl_xor_sync(~0U, threadIdx.x, 5U);
  });
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(result[i], (63 - i) * 100 + (i ^ 5U));
}

TEST(PretendGridDeathTest, ABarrierThatNotAllReachEndsTheProgram) {
  EXPECT_DEATH(pretend::run_grid(dim3(1), dim3(64),
                                 [] {
                                   if (threadIdx.x < 32) {
                                     __syncthreads();
                                   } else {
                                     static_cast<void>(__shfl_xor_sync(~0U, 1, threadIdx.x < 40 ? 1U : 2U));
                                     static_cast<void>(__shfl_xor_sync(~0U, 1, 1U));
                                     __syncthreads();
                                     if (threadIdx.x == 40)
                                       __syncthreads();
                                     else
                                       static_cast<void>(__shfl_xor_sync(~0U, 1, 1U));
                                   }
                                 }),
               "never come to the same barrier");
}

}  // namespace
}  // namespace ddp
