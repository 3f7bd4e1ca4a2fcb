// Tests that need a stand-in GPU: kernels that would break a run, and a library that computes wrong results.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backend/arithmetic.h"
#include "backend/cuda/candidates/timing.h"
#include "backend/cuda/conv/conv.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/device/handles.h"
#include "backend/cuda/device/recording.h"
#include "backend/cuda/pointwise/pointwise.h"
#include "backend/cuda/vendor/conv_kernel.h"
#include "backend/cuda/vendor/conv_plans.h"
#include "backend/device_values.h"
#include "backend/op_check.h"
#include "base/error.h"
#include "stand_ins/cuda/runtime.h"
#include "stand_ins/gpu/engines.h"
#include "stand_ins/gpu/grid.h"

namespace ddp {
namespace {

// Grouped convolutions, which our own kernels leave to cuDNN.
constexpr ConvSpec kSpec{.batch = 3, .input = {2, 6, 6}, .output_channels = 4, .window = square(3), .groups = 2};

cuda::ConvKernels chosen(const GpuBackendConfig& config, ChoiceMode mode, const ConvSpec& spec = kSpec) {
  const auto backend = make_cuda_backend(config);
  return cuda::conv_kernels_from_text(backend->chooser().choose(spec, Layout::nhwc, Layout::nhwc, mode).kernels, true);
}

TEST(StandInChoice, TheFastestIsNotTakenWhereItComputesWrong) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    const cuda::ConvKernels kernels = chosen({.precision = precision}, ChoiceMode::timed);
    for (const cuda::EngineChoice& choice : {kernels.forward, kernels.data, kernels.weights}) {
      EXPECT_NE(choice.engine, stand_in::wrong_engine());
    }
  }
}

TEST(StandInChoice, TheFixedRuleTakesTheFirst) {
  const cuda::ConvKernels kernels = chosen({}, ChoiceMode::fixed);
  for (const cuda::EngineChoice& choice : {kernels.forward, kernels.data, kernels.weights}) {
    EXPECT_EQ(choice.text(), "cudnn.11,2:3,13:-1");
  }
}

// However a plan fails, and whether kernels are timed or not.
TEST(StandInChoice, APlanThatDoesNotRunIsLeftOut) {
  for (const std::int64_t engine : {16, 17}) {
    const stand_in::ProposeFirst proposed(engine);
    for (const ChoiceMode mode : {ChoiceMode::fixed, ChoiceMode::timed}) {
      ::testing::internal::CaptureStderr();
      const cuda::ConvKernels kernels = chosen({}, mode);
      const std::string log = ::testing::internal::GetCapturedStderr();
      EXPECT_NE(log.find(fmt::format("cudnn.{} of cuDNN does not run on this GPU", engine)), std::string::npos) << log;
      for (const cuda::EngineChoice& choice : {kernels.forward, kernels.data, kernels.weights}) {
        EXPECT_NE(choice.engine, engine);
        EXPECT_TRUE(mode == ChoiceMode::timed || choice.engine == 11) << choice.text();
      }
    }
  }
}

// Grouped, with a stride and different paddings on each side.
constexpr ConvSpec kOddSpec{.batch = 4,
                            .input = {6, 9, 10},
                            .output_channels = 4,
                            .window = {.height = 5, .width = 3, .stride = 2, .padding = {2, 0, 1, 1}},
                            .groups = 2};

// The engine is proposed first, so the fixed rule would choose it without comparing others.
void expect_left_out(std::int64_t engine, Precision precision, ChoiceMode mode, const ConvSpec& spec) {
  const stand_in::ProposeFirst proposed(engine);
  ::testing::internal::CaptureStderr();
  const cuda::ConvKernels kernels = chosen({.precision = precision}, mode, spec);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find(fmt::format("cudnn.{}", engine)), std::string::npos) << log;
  EXPECT_NE(log.find("of cuDNN differs from the reference and is skipped"), std::string::npos) << log;
  for (const cuda::EngineChoice& choice : {kernels.forward, kernels.data, kernels.weights}) {
    EXPECT_NE(choice.engine, engine);
  }
}

TEST(StandInChoice, APlanThatComputesWrongIsLeftOutWhereverItStands) {
  for (const ConvSpec& spec : {kSpec, kOddSpec}) {
    for (const ChoiceMode mode : {ChoiceMode::fixed, ChoiceMode::timed}) {
      for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
        for (const std::int64_t engine :
             {stand_in::wrong_engine(), stand_in::border_engine(), stand_in::infinite_engine()}) {
          expect_left_out(engine, precision, mode, spec);
        }
      }
      expect_left_out(stand_in::rough_engine(), Precision::fp32, mode, spec);
    }
  }
  // Its error is within the precision of tf32 and bf16.
  const stand_in::ProposeFirst proposed(stand_in::rough_engine());
  EXPECT_EQ(chosen({.precision = Precision::tf32}, ChoiceMode::fixed).forward.engine, stand_in::rough_engine());
}

TEST(StandInChoice, WhereNoPlanComputesRightTheErrorSaysSo) {
  const stand_in::ProposeFirst proposed(stand_in::wrong_engine(), true);
  for (const ChoiceMode mode : {ChoiceMode::fixed, ChoiceMode::timed}) {
    try {
      static_cast<void>(chosen({}, mode));
      ADD_FAILURE() << "a kernel was chosen that computes wrong";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::preflight);
      EXPECT_NE(std::string(error.what())
                    .find("cuDNN has no kernel on this GPU that computes the result of a "
                          "convolution of 2x6x6 by 3x3 in 2 groups correctly"),
                std::string::npos)
          << error.what();
    }
  }
}

// Another engine would be slower than a kernel that adds what the first one has written.
TEST(StandInChoice, AKernelThatOverwritesIsNotTakenToAdd) {
  for (const ChoiceMode mode : {ChoiceMode::fixed, ChoiceMode::timed}) {
    const cuda::ConvKernels kernels = chosen({}, mode);
    ASSERT_TRUE(kernels.adding);
    EXPECT_EQ(kernels.adding->text(), kernels.data.text());
    const stand_in::ProposeFirst proposed(stand_in::overwriting_engine(), true);
    const auto backend = make_cuda_backend({});
    const std::string text = backend->chooser().choose(kSpec, Layout::nhwc, Layout::nhwc, mode).kernels;
    EXPECT_EQ(cuda::conv_kernels_from_text(text, true).data.engine, stand_in::overwriting_engine());
    EXPECT_FALSE(backend->ops().make_op(kSpec, Layout::nhwc, Layout::nhwc, text)->traits().adds_to_dx);
  }
}

constexpr ConvSpec kDepthwise{
    .batch = 2, .input = {16, 7, 7}, .output_channels = 16, .window = square(3, 1, 1), .groups = 16};

// Depthwise kernels of our own do not use cuDNN: here every engine computes wrong results.
TEST(StandInChoice, DepthwiseConvolutionsAreOurOwn) {
  const stand_in::ProposeFirst proposed(stand_in::wrong_engine(), true);
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    for (const ChoiceMode mode : {ChoiceMode::fixed, ChoiceMode::timed}) {
      const cuda::ConvKernels kernels = chosen({.precision = precision}, mode, kDepthwise);
      EXPECT_EQ(to_text(kernels, true),
                "forward=own.depthwise data=own.depthwise adding=own.depthwise weights=own.depthwise");
    }
  }
}

TEST(StandInChoice, OtherConvolutionsAreCudnns) {
  const auto with = [](auto change) {
    ConvSpec spec = kDepthwise;
    change(spec);
    return spec;
  };
  for (const ConvSpec& spec :
       {with([](ConvSpec& s) { s.output_channels = 32; }), with([](ConvSpec& s) { s.groups = 8; }),
        with([](ConvSpec& s) { s.window.stride = 3; }), with([](ConvSpec& s) { s.window.width = 5; }),
        with([](ConvSpec& s) { s.input.channels = s.output_channels = s.groups = 18; })}) {
    EXPECT_EQ(chosen({}, ChoiceMode::fixed, spec).forward.engine, 11) << describe(spec);
    try {
      const auto backend = make_cuda_backend({});
      const std::string kernels = "forward=own.depthwise data=own.depthwise weights=own.depthwise";
      static_cast<void>(backend->ops().make_op(spec, Layout::nhwc, Layout::nhwc, kernels));
      ADD_FAILURE() << "a kernel was accepted for a convolution that it does not support: " << describe(spec);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::preflight);
      EXPECT_NE(std::string(error.what()).find("the plan requires own.depthwise"), std::string::npos) << error.what();
    }
  }
}

// The format from before our own kernels existed.
TEST(StandInChoice, PlansOfOlderRunsAreRead) {
  const auto backend = make_cuda_backend({});
  const std::string kernels = "forward=cudnn.10 data=cudnn.11,2:3,13:-1 weights=cudnn.10";
  const auto op = backend->ops().make_op(kDepthwise, Layout::nhwc, Layout::nhwc, kernels);
  check_op({*backend, *op, kDepthwise, Layout::nhwc, Layout::nhwc, 2, 1e-5, "depthwise by cuDNN"});
}

// A broken GPU runs nothing more, so the run ends and names the kernel.
TEST(StandInChoice, APlanThatTakesTheGpuWithItIsNamed) {
  const stand_in::ProposeFirst proposed(18);
  const auto backend = make_cuda_backend({});
  try {
    static_cast<void>(backend->chooser().choose(kSpec, Layout::nhwc, Layout::nhwc, ChoiceMode::fixed));
    ADD_FAILURE() << "a kernel was chosen on a GPU that is lost";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::internal);
    EXPECT_NE(std::string(error.what()).find("cudnn.18"), std::string::npos) << error.what();
  }
  testing::break_streams(cudaSuccess);
}

TEST(StandInChoice, Fp32TakesNoTransformsThatLoseDigits) {
  for (const std::int64_t engine : {19, 20}) {
    const stand_in::ProposeFirst proposed(engine);
    EXPECT_EQ(chosen({}, ChoiceMode::fixed).forward.engine, 11);
    EXPECT_EQ(chosen({.precision = Precision::tf32}, ChoiceMode::fixed).forward.engine, engine);
  }
}

// The choice does not depend on the available memory.
TEST(StandInChoice, TheFixedRuleNeedsNoMemory) {
  const auto backend = make_cuda_backend({.memory_limit = stand_in::kContextBytes + cuda::kLaterReserve + 1000});
  const Memory rest = backend->memory().allocate(backend->memory().available_bytes(), "the test values");
  const KernelChoice choice = backend->chooser().choose(kSpec, Layout::nhwc, Layout::nhwc, ChoiceMode::fixed);
  EXPECT_EQ(cuda::conv_kernels_from_text(choice.kernels, true).forward.text(), "cudnn.11,2:3,13:-1");
}

// 30 ms on the host, 0.1 ms on the device.
TEST(StandInTiming, TheHostIsNotMeasured) {
  const cuda::Stream stream;
  const double seconds = cuda::fastest_seconds(stream.get(), [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    testing::enqueue(stream.get(), "kernel", [] { std::this_thread::sleep_for(std::chrono::microseconds(100)); });
  });
  EXPECT_GE(seconds, 1e-4);
  EXPECT_LT(seconds, 15e-3);
}

TEST(StandInTiming, WhatCannotBeRecordedIsTimedNonetheless) {
  const cuda::Stream stream;
  int runs = 0;
  const double seconds = cuda::fastest_seconds(stream.get(), [&] {
    testing::enqueue(stream.get(), "kernel", [&runs] {
      ++runs;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
    DDP_CUDA(cudaStreamSynchronize(stream.get()));
  });
  EXPECT_GE(seconds, 1e-4);
  EXPECT_GT(runs, 6);
  EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
}

TEST(StandInRecording, KeepsThePriorityOfEachStream) {
  const auto backend = make_cuda_backend({});
  const Memory memory = backend->memory().allocate(4, "the test values");
  const auto recording = backend->queue().record([&] { backend->math().fill_zero(memory.data(), 4); });
  EXPECT_EQ(testing::instantiation_flags(), cudaGraphInstantiateFlagUseNodePriority);
}

void check_with_first_kernels(Backend& backend, const OpSpec& spec, Layout layout, std::int64_t active,
                              double tolerance) {
  const auto op = backend.ops().make_op(spec, layout, layout,
                                        backend.chooser().choose(spec, layout, layout, ChoiceMode::fixed).kernels);
  check_op({backend, *op, spec, layout, layout, active, tolerance, kind_of(spec)});
}

// Exact sums of products include zeros, which real kernels may round to either side of ReLU. The second convolution has
// more rows than one chunk of the bias gradient's sum.
TEST(StandInKernels, ReluAfterAConvolutionWithoutBias) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const auto backend = make_cuda_backend({.precision = precision});
    ConvSpec spec = kSpec;
    spec.bias = false;
    spec.relu = true;
    for (const std::int64_t batch : {7, 40}) {
      for (const bool average_pool : {false, true}) {
        spec.batch = batch;
        spec.average_pool = average_pool;
        check_with_first_kernels(*backend, spec, Layout::nhwc, batch - 2, precision == Precision::bf16 ? 1e-2 : 1e-5);
      }
    }
  }
}

// With this many channels rows are split into the minimum number of chunks, and with this many rows each chunk is long.
TEST(StandInKernels, BatchNormOfManyChannelsInLongChunks) {
  const auto backend = make_cuda_backend({});
  check_with_first_kernels(*backend, BatchNormSpec{.batch = 10, .shape = {257, 31, 32}, .activation = Activation::relu},
                           Layout::plain, 9, 1e-5);
}

// [K][C][taps] to [K][taps][C] and back: one tile and several, an odd number of channels, and more taps than a tile
// holds.
TEST(StandInKernels, WeightsArePackedAndUnpacked) {
  struct Filter {
    std::int64_t outputs, channels, taps;
  };
  const std::vector<Filter> filters = {{3, 64, 9}, {2, 601, 9},  {2, 1030, 9}, {5, 3, 49},  {4, 700, 1},
                                       {9, 1, 25}, {2, 5, 4608}, {2, 3, 4609}, {2, 4, 2400}};
  for (const Element element : {Element::fp32, Element::bf16}) {
    const bool bf16 = element == Element::bf16;
    const auto backend = make_cuda_backend({.precision = bf16 ? Precision::bf16 : Precision::fp32});
    auto* stream = static_cast<cudaStream_t>(backend->queue().native_stream());
    for (const Filter& f : filters) {
      const auto count = static_cast<std::size_t>(f.outputs * f.channels * f.taps);
      const auto size = static_cast<std::int64_t>(count);
      // Small integers are exact in bf16; the elements before and after must not change.
      std::vector<float> weights(count + 2, -1.0F);
      std::vector<float> packed(count);
      for (std::size_t i = 0; i < count; ++i) weights[i + 1] = static_cast<float>(generator()() % 256);
      for (std::int64_t k = 0; k < f.outputs; ++k) {
        for (std::int64_t c = 0; c < f.channels; ++c) {
          for (std::int64_t t = 0; t < f.taps; ++t) {
            packed[static_cast<std::size_t>((k * f.taps + t) * f.channels + c)] =
                weights[static_cast<std::size_t>((k * f.channels + c) * f.taps + t) + 1];
          }
        }
      }
      const DeviceArray<float> plain(*backend, weights);
      const Memory moved = backend->memory().allocate(count * bytes_of(element), "the test values");
      const DeviceArray<float> widened(*backend, std::vector<float>(count));
      cuda::pack_weights(stream, plain.data() + 1, element, moved.data(), {f.outputs, f.channels, f.taps});
      cuda::convert(stream, element, moved.data(), Element::fp32, widened.data(), size);
      EXPECT_EQ(widened.get(), packed) << f.outputs << " " << f.channels << " " << f.taps;
      const DeviceArray<float> back(*backend, std::vector<float>(count + 2, -1.0F));
      cuda::unpack_weights(stream, element, moved.data(), back.data() + 1, {f.outputs, f.channels, f.taps});
      EXPECT_EQ(back.get(), weights) << f.outputs << " " << f.channels << " " << f.taps;
    }
  }
}

// Deviations of about 1e-4 of the mean, which sums of squares would lose completely.
TEST(Moments, AreMergedWithoutLosingSmallDeviations) {
  std::mt19937 engine{std::random_device{}()};
  std::uniform_real_distribution<float> uniform(-0.03F, 0.03F);
  Moments all{0, 0, 0};
  std::vector<double> values;
  for (const int part : {1, 200, 3, 57, 0, 128}) {
    const auto begin = values.size();
    for (int i = 0; i < part; ++i) values.push_back(static_cast<double>(100.0F + uniform(engine)));
    float sum = 0;
    float squares = 0;
    for (std::size_t i = begin; i < values.size(); ++i) {
      const float apart = static_cast<float>(values[i]) - static_cast<float>(values[begin]);
      sum += apart;
      squares += apart * apart;
    }
    const float shift = part > 0 ? static_cast<float>(values[begin]) : 0.0F;
    all = merged(all, shifted_moments(static_cast<float>(part), shift, sum, squares));
  }
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  EXPECT_EQ(all.count, static_cast<float>(values.size()));
  // A mean is rounded to 2^-18 at most six times, and differences of two means are about 2^-8.
  EXPECT_NEAR(static_cast<double>(all.mean), mean, 3e-5);
  EXPECT_NEAR(static_cast<double>(all.squares) / squares, 1, 2e-3);
}

TEST(StandInMemory, ACapIsKept) {
  constexpr std::size_t kLimit = std::size_t{2} << 30U;
  const auto backend = make_cuda_backend({.memory_limit = kLimit});
  const std::size_t most = backend->memory().available_bytes();
  EXPECT_EQ(most, kLimit - stand_in::kContextBytes - cuda::kLaterReserve);
  const Memory some = backend->memory().allocate(1000, "the test values");
  EXPECT_EQ(backend->memory().available_bytes(), most - 1000);
  EXPECT_THROW(static_cast<void>(backend->memory().allocate(most - 999, "the test values")), Error);
  EXPECT_EQ(backend->memory().available_bytes(), most - 1000);
}

// The driver's count for this process is trusted and queried again.
TEST(StandInMemory, WhatLibrariesTakeIsMeasured) {
  constexpr std::size_t kLimit = std::size_t{2} << 30U;
  std::size_t beside = std::size_t{500} << 20U;
  const auto backend =
      make_cuda_backend({.memory_limit = kLimit, .process_bytes = [&] { return beside + testing::allocated_bytes(); }});
  const Memory some = backend->memory().allocate(1000, "the test values");
  EXPECT_EQ(backend->memory().available_bytes(), kLimit - beside - cuda::kLaterReserve - 1000);
  beside += std::size_t{300} << 20U;
  EXPECT_EQ(backend->memory().available_bytes(), kLimit - beside - cuda::kLaterReserve - 1000);
  EXPECT_THROW(static_cast<void>(backend->memory().allocate(kLimit - beside - cuda::kLaterReserve, "the test values")),
               Error);
}

TEST(StandInGpu, AGpuThatIsNotThereIsNamed) {
  try {
    static_cast<void>(make_cuda_backend({.ordinal = 3}));
    FAIL() << "GPU 3 of 1 was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::preflight);
    EXPECT_NE(std::string(error.what()).find("there is no GPU 3: 1 visible"), std::string::npos) << error.what();
  }
  EXPECT_EQ(visible_gpus().at(0).pci_id, "0000:0a:00.0");
  EXPECT_EQ(make_cuda_backend({.precision = Precision::bf16})->ops().traits().description.substr(0, 24),
            "Stand-in GPU, bf16, CUDA");
}

// The grid itself: every thread of every block runs once; sums over blocks with barriers, exchanges within warps.
TEST(StandInGrid, RunsEveryThreadOnce) {
  std::vector<int> runs(3 * 2 * 8 * 4);
  stand_in::run_grid(dim3(3, 2), dim3(8, 4),
                     [&] { ++runs[((blockIdx.y * 3 + blockIdx.x) * 4 + threadIdx.y) * 8 + threadIdx.x]; });
  EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
}

TEST(StandInGrid, BarriersAndExchangesHoldThreadsTogether) {
  std::vector<unsigned> values(64);
  std::vector<unsigned> result(64);
  stand_in::run_grid(dim3(5), dim3(64), [&] {
    values[threadIdx.x] = threadIdx.x;
    __syncthreads();
    const unsigned opposite = values[63 - threadIdx.x];
    result[threadIdx.x] = opposite * 100 + __shfl_xor_sync(~0U, threadIdx.x, 5U);
  });
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(result[i], (63 - i) * 100 + (i ^ 5U));
}

TEST(StandInGridDeathTest, ABarrierThatNotAllReachEndsTheProgram) {
  EXPECT_DEATH(stand_in::run_grid(dim3(1), dim3(64),
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
