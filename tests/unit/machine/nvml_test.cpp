#include "machine/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "support/errors.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

// Each test selects the library and its behaviour.
class NvmlTest : public ::testing::Test {
 protected:
  static void use(const char* library, const char* mode = "") {
    ASSERT_EQ(setenv("DDP_NVML_LIBRARY", library, 1), 0);
    ASSERT_EQ(setenv("STAND_IN_NVML", mode, 1), 0);
  }
  void TearDown() override {
    unsetenv("DDP_NVML_LIBRARY");
    unsetenv("STAND_IN_NVML");
  }
};

TEST_F(NvmlTest, TellsAllOfAGpu) {
  use(DDP_STAND_IN_NVML);
  const Nvml nvml;
  EXPECT_EQ(nvml.driver_version(), "580.95.05");
  const std::vector<GpuStatus> gpus = nvml.gpus();
  ASSERT_EQ(gpus.size(), 3U);
  const GpuStatus& busy = gpus[0];
  EXPECT_EQ(busy.index, 0U);
  EXPECT_EQ(busy.name, "NVIDIA H200");
  EXPECT_EQ(busy.pci_id, "0000:3b:00.0");
  EXPECT_EQ(busy.uuid, "GPU-0a");
  ASSERT_TRUE(busy.memory);
  EXPECT_EQ(busy.memory->total, 140 * kGiB);
  EXPECT_EQ(busy.memory->used, 100 * kGiB);
  EXPECT_EQ(busy.memory->free, 40 * kGiB);
  EXPECT_EQ(busy.utilisation, 97U);
  EXPECT_EQ(busy.temperature, 83U);
  ASSERT_TRUE(busy.throttling);
  EXPECT_THAT(*busy.throttling, ElementsAre("power cap", "heat"));
  ASSERT_TRUE(busy.processes);
  ASSERT_EQ(busy.processes->size(), 2U);
  EXPECT_EQ((*busy.processes)[0].pid, static_cast<unsigned>(getpid()));
  EXPECT_EQ((*busy.processes)[0].name, "unit_machine");
  EXPECT_EQ((*busy.processes)[0].bytes, 3 * kGiB);
  EXPECT_EQ((*busy.processes)[1].name, "");
  EXPECT_EQ((*busy.processes)[1].bytes, std::nullopt);

  const GpuStatus& idle = gpus[1];
  EXPECT_EQ(idle.pci_id, "0000:d8:00.0");
  EXPECT_EQ(idle.utilisation, 0U);
  ASSERT_TRUE(idle.throttling);
  EXPECT_THAT(*idle.throttling, IsEmpty()) << "to be idle is not to be held down";
  ASSERT_TRUE(idle.processes);
  EXPECT_THAT(*idle.processes, IsEmpty());
}

TEST_F(NvmlTest, TellsTheClockAndWhatReducesIt) {
  use(DDP_STAND_IN_NVML);
  const std::optional<GpuClock> both = Nvml().clock("0000:3b:00.0");
  ASSERT_TRUE(both);
  EXPECT_EQ(both->mhz, 1755U);
  EXPECT_EQ(both->highest_mhz, 1980U);
  EXPECT_TRUE(both->heat && both->power);
  const std::optional<GpuClock> idle = Nvml().clock("0000:d8:00.0");
  ASSERT_TRUE(idle);
  EXPECT_FALSE(idle->heat || idle->power) << "an idle GPU also has a low clock";
  EXPECT_FALSE(Nvml().clock("0000:ff:00.0")) << "no such GPU";
  use(DDP_STAND_IN_NVML, "throttled");
  const std::optional<GpuClock> hot = Nvml().clock("0000:3b:00.0");
  ASSERT_TRUE(hot);
  EXPECT_TRUE(hot->heat && !hot->power);
  use(DDP_STAND_IN_NVML, "silent");
  EXPECT_FALSE(Nvml().clock("0000:3b:00.0"));
}

TEST_F(NvmlTest, TellsWhatAProcessHoldsOfAGpu) {
  use(DDP_STAND_IN_NVML);
  const Nvml nvml;
  const auto self = static_cast<unsigned>(getpid());
  EXPECT_EQ(process_bytes(nvml, "0000:3b:00.0", self), 3 * kGiB);
  EXPECT_EQ(process_bytes(nvml, "0000:d8:00.0", self), std::nullopt);
  EXPECT_EQ(process_bytes(nvml, "0000:3b:00.0", 4194305), std::nullopt);
}

void expect_unknown(const GpuStatus& gpu) {
  EXPECT_FALSE(gpu.name || gpu.pci_id || gpu.uuid || gpu.memory || gpu.utilisation || gpu.temperature ||
               gpu.throttling || gpu.processes);
}

TEST_F(NvmlTest, WhatIsRefusedIsUnknownAndEndsNothing) {
  use(DDP_STAND_IN_NVML);
  const std::vector<GpuStatus> gpus = Nvml().gpus();
  ASSERT_EQ(gpus.size(), 3U);
  EXPECT_EQ(gpus[2].index, 2U);
  expect_unknown(gpus[2]);
  use(DDP_STAND_IN_NVML, "silent");
  const Nvml silent;
  EXPECT_EQ(silent.driver_version(), std::nullopt);
  const std::vector<GpuStatus> all = silent.gpus();
  ASSERT_EQ(all.size(), 3U);
  for (const GpuStatus& gpu : all) expect_unknown(gpu);
}

TEST_F(NvmlTest, AnOldLibraryTellsWhatItKnows) {
  use(DDP_STAND_IN_OLD_NVML);
  const Nvml nvml;
  EXPECT_EQ(nvml.driver_version(), std::nullopt);
  const std::vector<GpuStatus> gpus = nvml.gpus();
  ASSERT_EQ(gpus.size(), 3U);
  EXPECT_EQ(gpus[0].name, "NVIDIA H200");
  EXPECT_FALSE(gpus[0].memory);
  EXPECT_FALSE(gpus[0].pci_id);
  ASSERT_TRUE(gpus[0].throttling);
  EXPECT_THAT(*gpus[0].throttling, ElementsAre("power cap", "heat"));
  ASSERT_TRUE(gpus[0].processes);
  EXPECT_EQ(gpus[0].processes->size(), 2U);
}

TEST_F(NvmlTest, NoDriverIsOneClearLine) {
  use("/nonexistent/libnvidia-ml.so.1");
  EXPECT_THAT(error_text(ExitCode::preflight, [] { const Nvml nvml; }),
              AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("libnvidia-ml.so.1")));
  EXPECT_EQ(driver_version(), "");
  use(DDP_STAND_IN_NVML, "no-driver");
  EXPECT_THAT(error_text(ExitCode::preflight, [] { const Nvml nvml; }),
              AllOf(HasSubstr("no usable NVIDIA driver"), HasSubstr("Driver Not Loaded")));
  use(DDP_STAND_IN_NVML, "uncounted");
  EXPECT_THAT(error_text(ExitCode::preflight, [] { (void)Nvml().gpus(); }), HasSubstr("Not Supported"));
  // A library that lacks all the functions.
  use("libm.so.6");
  EXPECT_THAT(error_text(ExitCode::preflight, [] { const Nvml nvml; }), HasSubstr("no usable NVIDIA driver"));
}

TEST_F(NvmlTest, TheDriversVersionAlone) {
  use(DDP_STAND_IN_NVML);
  EXPECT_EQ(driver_version(), "580.95.05");
  use(DDP_STAND_IN_OLD_NVML);
  EXPECT_EQ(driver_version(), "");
}

}  // namespace
}  // namespace ddp
