// Buffers of a stand-in for CUPTI: tests/stand_ins/cupti.cpp.
#include "backend/cuda/device/cupti_trace.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/clock.h"
#include "support/errors.h"

namespace ddp::cuda {
namespace {

using ::testing::HasSubstr;

class CuptiTraceTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("DDP_CUPTI_LIBRARY", DDP_STAND_IN_CUPTI, 1);
    void* const library = dlopen(DDP_STAND_IN_CUPTI, RTLD_NOW | RTLD_LOCAL);
    launch_ = reinterpret_cast<Launch>(dlsym(library, "stand_in_launch"));
    copy_ = reinterpret_cast<Copy>(dlsym(library, "stand_in_copy"));
  }
  void TearDown() override { unsetenv("STAND_IN_CUPTI_FAULT"); }

  using Launch = void (*)(const char*, std::uint32_t, std::uint64_t);
  using Copy = void (*)(std::uint32_t, std::uint64_t);
  Launch launch_ = nullptr;
  Copy copy_ = nullptr;
};

TEST_F(CuptiTraceTest, TheLastKernelsAreKeptOnTheClockOfTheHost) {
  constexpr int kLaunches = 20000;  // several buffers
  constexpr std::size_t kMost = 1000;
  const auto trace = start_cupti_trace(kMost);
  std::vector<double> times;
  for (int i = 0; i < kLaunches; ++i) {
    times.push_back(now());
    launch_(i % 2 == 0 ? "_ZN3ddp4evenILi4EEEvPf" : "odd", static_cast<std::uint32_t>(7 + i % 2), 3000);
  }
  times.push_back(now());
  const std::vector<GpuSpan> spans = trace->finish();
  ASSERT_EQ(spans.size(), kMost);
  for (std::size_t i = 0; i < kMost; ++i) {
    const std::size_t launch = kLaunches - kMost + i;
    EXPECT_EQ(spans[i].stream, 7 + launch % 2);
    EXPECT_EQ(spans[i].name, launch % 2 == 0 ? "ddp::even<4>" : "odd");
    // Reading both clocks takes far less than 100 us, unless this process loses its core meanwhile, 16 times.
    EXPECT_NEAR(spans[i].begin, (times[launch] + times[launch + 1]) / 2,
                100e-6 + (times[launch + 1] - times[launch]) / 2);
    EXPECT_NEAR(spans[i].end - spans[i].begin, 3e-6, 0.1e-6);
  }
}

TEST_F(CuptiTraceTest, CopiesAndFillsAreNamed) {
  const auto trace = start_cupti_trace();
  copy_(3, 1000);
  const std::vector<GpuSpan> spans = trace->finish();
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].name, "copy to the GPU");
  EXPECT_EQ(spans[1].name, "fill");
}

TEST_F(CuptiTraceTest, OneTraceAtATimeAndNothingAfterIt) {
  {
    const auto trace = start_cupti_trace();
    EXPECT_THAT(error_text(ExitCode::preflight, [] { (void)start_cupti_trace(); }), HasSubstr("another trace"));
    launch_("first", 1, 1000);
    EXPECT_EQ(trace->finish().size(), 1U);
    launch_("late", 1, 1000);
  }
  const auto again = start_cupti_trace();
  launch_("second", 1, 1000);
  const std::vector<GpuSpan> spans = again->finish();
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].name, "second");
}

TEST_F(CuptiTraceTest, WhatIsMissingIsSaid) {
  const auto error = [] { return error_text(ExitCode::preflight, [] { (void)start_cupti_trace(); }); };
  setenv("STAND_IN_CUPTI_FAULT", "busy", 1);
  EXPECT_THAT(error(), HasSubstr("the stand-in refuses"));
  setenv("STAND_IN_CUPTI_FAULT", "old", 1);
  EXPECT_THAT(error(), HasSubstr("is older than"));
  setenv("DDP_CUPTI_LIBRARY", "/nowhere/libcupti.so", 1);
  EXPECT_THAT(error(), HasSubstr("DDP_CUPTI_LIBRARY"));
}

TEST(KernelNameTest, ReturnTypeAndArgumentsAreLeftOut) {
  EXPECT_EQ(kernel_name("plain_name"), "plain_name");
  EXPECT_EQ(kernel_name("_ZN3ddp12_GLOBAL__N_14poolILi4EEEvPKfPf"), "ddp::(anonymous namespace)::pool<4>");
  EXPECT_EQ(kernel_name("_Z3addIfEvPT_i"), "add<float>");
  EXPECT_EQ(kernel_name("_ZN3ddp4copyEPfPKf"), "ddp::copy");
  EXPECT_EQ(kernel_name(std::string(500, 'x').c_str()), std::string(157, 'x') + "...");
}

}  // namespace
}  // namespace ddp::cuda
