#include "machine/peak.h"

#include <gtest/gtest.h>

namespace ddp {
namespace {

TEST(PeakTest, KnownGpusHaveAPeak) {
  EXPECT_DOUBLE_EQ(gpu_peak_flops("NVIDIA H100 80GB HBM3", Precision::bf16).value_or(0), 989.4e12);
  EXPECT_DOUBLE_EQ(gpu_peak_flops("NVIDIA H100 PCIe", Precision::bf16).value_or(0), 756e12);
  EXPECT_DOUBLE_EQ(gpu_peak_flops("NVIDIA A100-SXM4-80GB", Precision::tf32).value_or(0), 156e12);
  EXPECT_DOUBLE_EQ(gpu_peak_flops("NVIDIA H200", Precision::fp32).value_or(0), 66.9e12);
  EXPECT_EQ(gpu_peak_flops("Some GPU", Precision::fp32), std::nullopt);
}

TEST(PeakTest, CoresAreCountedByClockAndVectorWidth) {
  const std::string avx2 = "processor : 0\ncpu MHz : 2000.0\nflags : fpu avx2 fma\n\nprocessor : 1\ncpu MHz : 1.0\n";
  EXPECT_EQ(cpu_peak_flops(3, avx2), 3 * 2e9 * 32);
  EXPECT_EQ(cpu_peak_flops(1, "cpu MHz : 2000\nflags : avx2 fma avx512f"), 2e9 * 64);
  EXPECT_EQ(cpu_peak_flops(1, "cpu MHz : 2000\nflags : sse2"), std::nullopt);
  EXPECT_EQ(cpu_peak_flops(1, "Features : asimd"), std::nullopt);
}

}  // namespace
}  // namespace ddp
