#include "backend/cuda/candidates/timing.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/candidates/conv_check.h"
#include "backend/cuda/candidates/op_trial.h"
#include "backend/cuda/conv/conv.h"
#include "backend/cuda/device/check.h"
#include "backend/cuda/device/recording.h"
#include "backend/cuda/update/update.h"
#include "backend/cuda/vendor/conv_kernel.h"
#include "backend/cuda/vendor/conv_plans.h"
#include "backend/cuda/vendor/conv_problem.h"
#include "base/error.h"
#include "base/log.h"

namespace ddp::cuda {
namespace {

// The maximum number of kernels timed per direction.
constexpr std::size_t kCandidates = 8;
// The allowed difference between two correct kernels, relative to the largest result.
double tolerance_of(Precision precision) { return precision == Precision::fp32 ? 1e-4 : 3e-2; }

std::string name_of_kernel(const EngineChoice& choice) {
  return choice.depthwise ? "the kernel " + choice.text() : choice.text() + " of cuDNN";
}

// The tensors of one direction of a convolution, and memory for the results of two kernels.
class ConvTrial {
 public:
  ConvTrial(const DeviceContext& device, const CudaContext& context, const ConvProblem& problem)
      : device_(device), context_(context), problem_(problem) {
    const ConvSpec& s = problem.spec;
    const std::array<std::int64_t, 3> counts = {s.batch * s.input.elements(), s.weights(),
                                                s.batch * s.convolved().elements()};
    for (std::size_t i = 0; i < counts.size(); ++i) {
      tensors_.at(i) = filled(device, context, context.element(), counts.at(i), static_cast<std::uint32_t>(i));
    }
    result_ = problem.direction == ConvDirection::forward ? 2 : problem.direction == ConvDirection::data ? 0 : 1;
    count_ = counts.at(result_);
  }

  // Whether the kernel runs, see attempt(), and computes the correct result; otherwise logs a line.
  bool works(ConvKernel& kernel) {
    make_room(kernel);
    if (!check_) check_.emplace(device_, context_, problem_, pointers(tensors_.at(result_)));
    const Memory& result = tensors_.at(result_);
    // Elements that a kernel does not write remain NaN.
    DDP_CUDA(cudaMemsetAsync(result.data(), 0xFF, result.bytes(), context_.stream));
    if (!attempt(context_.stream, name_of_kernel(kernel.choice()), [&] { run(kernel, result); })) return false;
    const std::string difference = check_->difference(result.data(), static_cast<std::size_t>(count_));
    if (difference.empty()) return true;
    log_warning("{} differs from the reference and is skipped: {}", name_of_kernel(kernel.choice()), difference);
    return false;
  }

  // Whether `adding` adds to what is there: the result of `kernel`, which works, comes to twice itself. Otherwise logs a
  // line.
  bool adds(ConvKernel& kernel, ConvKernel& adding) {
    if (!works(kernel)) return false;
    make_room(adding);
    const Memory& result = tensors_.at(result_);
    if (!attempt(context_.stream, name_of_kernel(adding.choice()), [&] { run(adding, result); })) return false;
    const std::string difference = check_->difference(result.data(), static_cast<std::size_t>(count_), 2);
    if (difference.empty()) return true;
    log_warning("{} does not add to a gradient and is not used for that: {}", name_of_kernel(adding.choice()),
                difference);
    return false;
  }

  // The time of a kernel; nullopt if it fails.
  std::optional<double> seconds(ConvKernel& kernel) const {
    double seconds = 0;
    const auto measure = [&] {
      seconds = fastest_seconds(context_.stream, [&] { run(kernel, tensors_.at(result_)); });
    };
    return attempt(context_.stream, name_of_kernel(kernel.choice()), measure) ? std::optional(seconds) : std::nullopt;
  }

  // Whether the results of two kernels agree, within the tolerance of the precision.
  bool agree(ConvKernel& a, ConvKernel& b) {
    if (second_.bytes() == 0) {
      second_ = filled(device_, context_, context_.element(), count_);
      comparison_ = device_.memory().allocate(2 * sizeof(float), kTrialPurpose);
    }
    run(a, tensors_.at(result_));
    run(b, second_);
    auto* comparison = comparison_.at<float>(0);
    compare(context_.stream, context_.element(), tensors_.at(result_).data(), second_.data(),
            static_cast<std::size_t>(count_), comparison);
    std::array<float, 2> values{};
    device_.queue().download(values.data(), comparison, sizeof(values));
    device_.queue().synchronize();
    return static_cast<double>(values[0]) <= tolerance_of(context_.precision) * static_cast<double>(values[1]);
  }

 private:
  void make_room(const ConvKernel& kernel) {
    if (kernel.workspace_bytes() <= workspace_.bytes()) return;
    workspace_ = {};
    workspace_ = device_.memory().allocate(kernel.workspace_bytes(), kTrialPurpose);
  }
  ConvPointers pointers(const Memory& result) const {
    std::array<const void*, 3> p = {tensors_[0].data(), tensors_[1].data(), tensors_[2].data()};
    p.at(result_) = result.data();
    return {p[0], p[1], p[2]};
  }
  void run(ConvKernel& kernel, const Memory& result) const { kernel.execute(pointers(result), workspace_.data()); }

  const DeviceContext& device_;
  const CudaContext& context_;
  ConvProblem problem_;
  std::array<Memory, 3> tensors_;  // x, w, y
  std::optional<ConvCheck> check_;
  Memory second_;
  Memory workspace_;
  Memory comparison_;
  std::size_t result_ = 0;  // which of the tensors is written
  std::int64_t count_ = 0;
};

const char* name_of_direction(ConvDirection direction) {
  switch (direction) {
    case ConvDirection::forward:
      return "the result";
    case ConvDirection::data:
      return "the input's gradient";
    case ConvDirection::weights:
      break;
  }
  return "the weights' gradient";
}

using ConvKernelList = std::vector<std::unique_ptr<ConvKernel>>;

// The kernels accepted by `usable`, at most `most`: our own first if there is one, then cuDNN's.
ConvKernelList kernels_for(const CudaContext& context, const ConvProblem& problem, std::size_t most,
                           const std::function<bool(ConvKernel&)>& usable) {
  ConvKernelList kernels;
  std::unique_ptr<ConvKernel> own = make_own_conv_kernel(context, problem);
  if (own && usable(*own)) kernels.push_back(std::move(own));
  if (kernels.size() < most) {
    const ConvGraph graph(problem, context.plan_target());
    const PlanLimits limits{.deterministic = context.deterministic, .most = most - kernels.size()};
    for (ConvPlan& plan : conv_plans(graph, context.precision, limits, usable)) {
      kernels.push_back(std::make_unique<ConvPlan>(std::move(plan)));
    }
  }
  check(
      !kernels.empty(), ExitCode::preflight,
      "cuDNN has no kernel on this GPU that computes {} of a convolution of {}x{}x{} by {}x{} in {} groups correctly; "
      "use another version of cuDNN, or --device cpu",
      name_of_direction(problem.direction), problem.spec.input.channels, problem.spec.input.height,
      problem.spec.input.width, problem.spec.window.height, problem.spec.window.width, problem.spec.groups);
  return kernels;
}

EngineChoice fastest_kernel(const DeviceContext& device, const CudaContext& context, const ConvProblem& problem) {
  ConvTrial trial(device, context, problem);
  const ConvKernelList kernels =
      kernels_for(context, problem, kCandidates, [&](ConvKernel& kernel) { return trial.works(kernel); });
  std::vector<std::pair<double, std::size_t>> times;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (const std::optional<double> seconds = trial.seconds(*kernels[i])) times.emplace_back(*seconds, i);
  }
  std::sort(times.begin(), times.end());
  const EngineChoice& first = kernels[0]->choice();
  for (const auto& [seconds, i] : times) {
    if (i == 0 || trial.agree(*kernels[0], *kernels[i])) return kernels[i]->choice();
    log_warning("{} differs from {} and is skipped", name_of_kernel(kernels[i]->choice()), first.text());
  }
  return first;
}

// Tried once, unless memory is insufficient: the choice must not depend on the free memory.
EngineChoice first_kernel(const DeviceContext& device, const CudaContext& context, const ConvProblem& problem) {
  std::optional<ConvTrial> trial;
  const auto usable = [&](ConvKernel& kernel) {
    try {
      if (!trial) trial.emplace(device, context, problem);
      return trial->works(kernel);
    } catch (const Error& error) {
      if (error.code() != ExitCode::out_of_memory) throw;
      return true;
    }
  };
  return kernels_for(context, problem, 1, usable).front()->choice();
}

// The chosen kernel of a data gradient, if it can add to what is there. `device` null: nothing is tried.
std::optional<EngineChoice> adding_kernel(const DeviceContext* device, const CudaContext& context, ConvProblem problem,
                                          const EngineChoice& choice) {
  const std::unique_ptr<ConvKernel> kernel = make_conv_kernel(context, problem, choice);
  problem.add = true;
  std::unique_ptr<ConvKernel> adding;
  try {
    adding = make_conv_kernel(context, problem, choice);
    if (device != nullptr && !ConvTrial(*device, context, problem).adds(*kernel, *adding)) return std::nullopt;
  } catch (const Error& error) {
    // Without memory for a trial it is taken untried, as in first_kernel().
    if (error.code() == ExitCode::preflight) return std::nullopt;
    if (error.code() != ExitCode::out_of_memory) throw;
  }
  return choice;
}

template <class Choose>
ConvKernels for_each_direction(const DeviceContext* device, const CudaContext& context, const ConvSpec& spec,
                               Choose choose) {
  const Precision precision = context.precision;
  ConvKernels kernels;
  kernels.forward = choose(ConvProblem{spec, ConvDirection::forward, precision});
  if (spec.input_gradient) {
    const ConvProblem problem{spec, ConvDirection::data, precision};
    kernels.data = choose(problem);
    kernels.adding = adding_kernel(device, context, problem, kernels.data);
  }
  kernels.weights = choose(ConvProblem{spec, ConvDirection::weights, precision});
  return kernels;
}

}  // namespace

ConvKernels fastest_conv_kernels(const DeviceContext& device, const CudaContext& context, const ConvSpec& spec) {
  return for_each_direction(&device, context, spec,
                            [&](const ConvProblem& problem) { return fastest_kernel(device, context, problem); });
}

ConvKernels first_conv_kernels(const DeviceContext& device, const CudaContext& context, const ConvSpec& spec) {
  return for_each_direction(&device, context, spec,
                            [&](const ConvProblem& problem) { return first_kernel(device, context, problem); });
}

ConvKernels expected_conv_kernels(const CudaContext& context, const ConvSpec& spec) {
  return for_each_direction(nullptr, context, spec, [&](const ConvProblem& problem) {
    return kernels_for(context, problem, 1, [](ConvKernel& /*kernel*/) { return true; }).front()->choice();
  });
}

double guessed_seconds(std::span<const OpSpec> specs, const CudaContext& context) {
  // Roughly a data-centre GPU; only the order of magnitude matters, to choose between layouts.
  constexpr double kBytesPerSecond = 2e12;
  constexpr double kOperationsPerSecond = 30e12;
  constexpr double kLaunchSeconds = 2e-6;
  const OpSpec& first = specs.front();
  std::int64_t values = output_of(specs.back()).elements();
  for (const Shape& shape : input_shapes(specs)) values += shape.elements();
  const auto elements = static_cast<double>(batch_of(first) * values);
  const double bytes = 2 * elements * static_cast<double>(bytes_of(context.element()));
  double multiply_adds = 0;
  for (const OpSpec& spec : specs) multiply_adds += forward_multiply_adds(spec);
  return kLaunchSeconds + bytes / kBytesPerSecond + 3 * 2 * multiply_adds / kOperationsPerSecond;
}

}  // namespace ddp::cuda
