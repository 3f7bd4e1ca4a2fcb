#include "backend/cuda/vendor/conv_kernel.h"

#include "backend/cuda/conv/conv.h"
#include "backend/cuda/vendor/conv_problem.h"
#include "base/error.h"

namespace ddp::cuda {
namespace {

class DepthwiseKernel final : public ConvKernel {
 public:
  DepthwiseKernel(cudaStream_t stream, const ConvProblem& problem) : stream_(stream), problem_(problem) {
    choice_.depthwise = true;
  }

  const EngineChoice& choice() const override { return choice_; }
  std::size_t workspace_bytes() const override { return depthwise_workspace_bytes(problem_); }
  std::int64_t kernels() const override { return problem_.direction == ConvDirection::weights ? 2 : 1; }
  void execute(const ConvPointers& pointers, void* workspace) override {
    depthwise(stream_, problem_, pointers, workspace);
  }

 private:
  cudaStream_t stream_;
  ConvProblem problem_;
  EngineChoice choice_;
};

}  // namespace

std::unique_ptr<ConvKernel> make_own_conv_kernel(const CudaContext& context, const ConvProblem& problem) {
  if (!depthwise_supports(context.element(), problem.spec)) return nullptr;
  return std::make_unique<DepthwiseKernel>(context.stream, problem);
}

std::unique_ptr<ConvKernel> make_conv_kernel(const CudaContext& context, const ConvProblem& problem,
                                             const EngineChoice& choice) {
  if (!choice.depthwise) {
    return std::make_unique<ConvPlan>(ConvGraph(problem, context.plan_target()), choice);
  }
  std::unique_ptr<ConvKernel> kernel = make_own_conv_kernel(context, problem);
  check(kernel != nullptr, ExitCode::preflight,
        "the plan requires {} for a convolution of {}x{}x{} by {}x{} in {} groups, which it does not support",
        choice.text(), problem.spec.input.channels, problem.spec.input.height, problem.spec.input.width,
        problem.spec.window.height, problem.spec.window.width, problem.spec.groups);
  return kernel;
}

}  // namespace ddp::cuda
