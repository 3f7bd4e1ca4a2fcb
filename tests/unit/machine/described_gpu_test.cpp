#include "machine/described_gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "support/errors.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string h100() { return read_text(DDP_GPU_JSON, ExitCode::internal); }

std::string with(const std::string& from, const std::string& to) {
  std::string text = h100();
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refusal_of(const std::string& text) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "gpu.json";
  std::ofstream(path) << text;
  return error_text(ExitCode::usage, [&] { read_gpu_description(path); });
}

TEST(GpuDescription, IsReadAsCudnnWritesIt) {
  const GpuDescription gpu = read_gpu_description(DDP_GPU_JSON);
  EXPECT_EQ(gpu.name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(gpu.major, 9);
  EXPECT_EQ(gpu.minor, 0);
  EXPECT_EQ(gpu.multiprocessors, 132);
  EXPECT_EQ(gpu.total_bytes, 85017493504U);
  EXPECT_EQ(gpu.json, h100());
}

TEST(GpuDescription, CountsComputeCapabilitiesInHundreds) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "gpu.json";
  std::ofstream(path) << with("\"deviceVer\":900", "\"deviceVer\":1030");
  EXPECT_EQ(read_gpu_description(path).major, 10);
  EXPECT_EQ(read_gpu_description(path).minor, 3);
}

TEST(GpuDescription, WhatIsNoneIsRefused) {
  for (const std::string& text :
       {std::string(), std::string("not JSON"), std::string("[1, 2]"), h100().substr(0, 300)}) {
    EXPECT_THAT(refusal_of(text), AllOf(HasSubstr("gpu.json: is not a JSON object"), HasSubstr("h100.json"))) << text;
  }
  EXPECT_THAT(refusal_of("{}"), HasSubstr("has no value of \"deviceVer\""));
  EXPECT_THAT(refusal_of(with("\"deviceVer\":900", "\"deviceVer\":-900")),
              HasSubstr("impossible value of \"deviceVer\""));
  EXPECT_THAT(refusal_of(with("\"deviceVer\":900", "\"deviceVer\":\"9.0\"")), HasSubstr("\"deviceVer\""));
  EXPECT_THAT(refusal_of(with("\"maxSharedMemoryPerBlockOptin\":232448", "\"maxSharedMemoryPerBlockOptin\":-1")),
              HasSubstr("\"maxSharedMemoryPerBlockOptin\""));
  EXPECT_THAT(refusal_of(with("\"multiProcessorCount\":132", "\"multiProcessorCount\":0")),
              HasSubstr("\"multiProcessorCount\""));
  EXPECT_THAT(refusal_of(with("85017493504", "1e30")), HasSubstr("\"totalGlobalMem\""));
  EXPECT_THAT(refusal_of(with("\"NVIDIA H100 80GB HBM3\"", "7")), HasSubstr("\"deviceName\""));
}

TEST(GpuDescription, NeedsARegularFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_text(ExitCode::usage, [&] { read_gpu_description(folder.path() / "none.json"); }),
              HasSubstr("none.json"));
  EXPECT_THAT(error_text(ExitCode::usage, [&] { read_gpu_description(folder.path()); }),
              HasSubstr(folder.path().string()));
  EXPECT_THAT(error_text(ExitCode::usage, [&] { read_gpu_description("/dev/zero"); }), HasSubstr("/dev/zero"));
}

}  // namespace
}  // namespace ddp
