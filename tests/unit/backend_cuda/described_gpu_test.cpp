// Plans for a whole network on a GPU that exists only as a description, without a driver.
#include "backend/cuda/described_gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/device_memory.h"
#include "base/file.h"
#include "model/layout_plan.h"
#include "model/network.h"
#include "model/zoo.h"
#include "support/errors.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kGiB = std::size_t{1} << 30U;

GpuDescription h100() {
  return {.json = read_text(DDP_GPU_JSON, ExitCode::internal),
          .name = "NVIDIA H100",
          .major = 9,
          .minor = 0,
          .multiprocessors = 132,
          .total_bytes = 79 * kGiB};
}

struct Planned {
  LayoutPlan plan;
  std::string text;
  std::size_t arena_bytes = 0;
};
Planned plan_for(const GpuBackendConfig& config, const std::string& model, const Shape& image, std::int64_t batch) {
  const std::unique_ptr<Backend> backend = make_described_cuda_backend(h100(), config);
  const Graph graph = make_model(model, image, 10);
  const std::vector<Stage> stages = make_stages(graph, batch, backend->ops().traits().takes_bias_into_norm);
  NetworkConfig network_config;
  network_config.batch = batch;
  network_config.image = image;
  network_config.plan_only = true;
  Planned planned{.plan = plan_layouts(*backend, stages, ChoiceMode::fixed), .text = "", .arena_bytes = 0};
  const Network network(*backend, graph, network_config, planned.plan);
  planned.text = network.describe();
  planned.arena_bytes = network.memory().arena_bytes;
  return planned;
}

TEST(DescribedGpu, HasAPlanForEveryModelInEveryPrecision) {
  for (const std::string& model : model_names()) {
    // ImageNet's size for models that require it.
    const Shape image = model == "alexnet" ? Shape{3, 227, 227} : Shape{3, 32, 32};
    for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
      try {
        const Planned planned = plan_for({.precision = precision}, model, image, 16);
        EXPECT_GT(planned.arena_bytes, std::size_t{16} * image.size()) << model;
        EXPECT_FALSE(planned.plan.stages.empty()) << model;
      } catch (const Error& error) {
        // Models for greyscale images reject this shape.
        EXPECT_EQ(error.code(), ExitCode::usage) << model << ": " << error.what();
      }
    }
  }
}

TEST(DescribedGpu, ConvolutionsAreCudnnsOrOurs) {
  const Planned fp32 = plan_for({}, "lenet", {1, 28, 28}, 64);
  EXPECT_EQ(fp32.plan.stages[0].layout, Layout::nhwc);
  EXPECT_THAT(fp32.plan.stages[1].kernels,
              AllOf(HasSubstr("forward=cudnn."), HasSubstr("data=cudnn."), HasSubstr("weights=cudnn.")));
  // cuDNN would pad 1, 20 and 50 channels.
  const Planned bf16 = plan_for({.precision = Precision::bf16}, "lenet", {1, 28, 28}, 64);
  EXPECT_EQ(bf16.plan.stages[1].kernels, "mma");
  EXPECT_LT(bf16.arena_bytes, fp32.arena_bytes);
}

TEST(DescribedGpu, MemoryGrowsWithTheBatch) {
  const std::size_t small = plan_for({}, "resnet18-d2l", {3, 32, 32}, 64).arena_bytes;
  EXPECT_GT(plan_for({}, "resnet18-d2l", {3, 32, 32}, 256).arena_bytes, 2 * small);
}

TEST(DescribedGpu, HasTheMemoryThatMayBeUsedAndGivesNone) {
  const auto whole = make_described_cuda_backend(h100(), {});
  EXPECT_EQ(whole->memory().available_bytes(), 79 * kGiB - cuda::kRuntimeReserve);
  EXPECT_EQ(make_described_cuda_backend(h100(), {.memory_limit = 8 * kGiB})->memory().available_bytes(),
            8 * kGiB - cuda::kRuntimeReserve);
  EXPECT_THAT(error_text(ExitCode::internal, [&] { (void)whole->memory().allocate(1, "the activations"); }),
              HasSubstr("the activations"));
}

TEST(DescribedGpu, ItsDescriptionMustBeCudnns) {
  GpuDescription gpu = h100();
  const std::string key = "\"warpSize\":32,";
  gpu.json.erase(gpu.json.find(key), key.size());
  EXPECT_THAT(error_text(ExitCode::usage, [&] { (void)make_described_cuda_backend(gpu, {}); }),
              AllOf(HasSubstr("does not take the description of NVIDIA H100"), HasSubstr("cuDNN 9.")));
}

TEST(DescribedGpu, ThisBuildMustHaveKernelsForIt) {
  GpuDescription gpu = h100();
  gpu.name = "Tesla K80";
  gpu.major = 3;
  gpu.minor = 7;
  EXPECT_THAT(error_text(ExitCode::preflight, [&] { (void)make_described_cuda_backend(gpu, {}); }),
              AllOf(HasSubstr("Tesla K80 has compute capability 3.7"), HasSubstr("DDP_CUDA_ARCHITECTURES")));
}

TEST(DescribedGpu, WhichBuildsHaveKernels) {
  const auto runs = cuda::runs_on;
  const std::string standard = "80-real,90";
  EXPECT_TRUE(runs(standard, 8, 0));
  EXPECT_TRUE(runs(standard, 8, 6)) << "machine code serves later minor versions";
  EXPECT_TRUE(runs(standard, 9, 0));
  EXPECT_TRUE(runs(standard, 12, 0)) << "PTX serves later versions";
  EXPECT_FALSE(runs(standard, 7, 5));
  EXPECT_FALSE(runs("90-real", 10, 0));
  EXPECT_FALSE(runs("90-real", 8, 9));
  EXPECT_FALSE(runs("86-real", 8, 0));
  EXPECT_TRUE(runs("75-virtual", 9, 0));
  EXPECT_FALSE(runs("90a", 10, 0));
  EXPECT_TRUE(runs("90a", 9, 0));
  EXPECT_TRUE(runs("native", 7, 0));
  EXPECT_FALSE(runs("", 9, 0));
}

TEST(DescribedGpu, OlderCudnnPlansForNone) {
  EXPECT_NO_THROW(cuda::check_can_describe(90800));
  EXPECT_THAT(error_text(ExitCode::preflight, [] { cuda::check_can_describe(90701); }),
              AllOf(HasSubstr("cuDNN 9.7.1"), HasSubstr("9.8 or later")));
}

}  // namespace
}  // namespace ddp
