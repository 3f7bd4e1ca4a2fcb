// Plans of kernels that cuDNN compiles at run time, for a GPU that exists only as a description. They need a driver,
// here tests/stand_ins/libcuda.cpp. cuDNN generates and compiles the code; nothing runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "backend/cuda/vendor/conv_plans.h"

namespace ddp::cuda {
namespace {

constexpr ConvSpec kSample{.batch = 32, .input = {64, 28, 28}, .output_channels = 64, .window = square(3, 1, 1)};

TEST(CompiledPlans, AreMadeButAreNoRunsFirstChoice) {
  std::ifstream file(DDP_GPU_JSON);
  ASSERT_TRUE(file.is_open());
  const Descriptor gpu = describe_gpu({std::istreambuf_iterator<char>(file), {}});
  const PlanTarget target{nullptr, &gpu};
  const ConvGraph graph({kSample, ConvDirection::forward, Precision::bf16}, target);
  std::vector<std::string> compiled;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (Descriptor& config : graph.engine_configs(mode)) {
      if (!notes_of(config).compiles) continue;
      const ConvPlan plan(graph, std::move(config));
      compiled.push_back(plan.choice().text());
      // Other ranks rebuild the plan from its name.
      EXPECT_EQ(ConvPlan(graph, plan.choice()).workspace_bytes(), plan.workspace_bytes()) << compiled.back();
    }
  }
  EXPECT_FALSE(compiled.empty()) << "cuDNN has no kernels to compile for this convolution: take another";
  for (const ConvPlan& plan : conv_plans(graph, Precision::bf16, {.most = 1000})) {
    EXPECT_EQ(std::count(compiled.begin(), compiled.end(), plan.choice().text()), 0) << plan.choice().text();
  }
}

}  // namespace
}  // namespace ddp::cuda
