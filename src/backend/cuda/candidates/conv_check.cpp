#include "backend/cuda/candidates/conv_check.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cuda/update/update.h"
#include "base/error.h"

namespace ddp::cuda {
namespace {

constexpr const char* kCheckPurpose = "the check of kernels";

// The relative error allowed for kernels of this precision, as in the operators' tests: fp32 rounds to 6e-8; tf32 and
// bf16 round factors or results to 5e-4 and 4e-3.
double part_allowed(Precision precision) { return precision == Precision::fp32 ? 1e-5 : 1e-2; }

// The operators' tests use values up to 1, whose products have a root mean square of 1/3.
constexpr double kTestsProducts = 3;
// A sequential fp32 sum of n products has a root mean square error of 2e-8 * sqrt(n) * sqrt(sum of squares): the
// partial sums grow like a random walk, and each addition has a relative error of 2.5e-8. Among hundreds of samples the
// maximum is about three times that, and no sum needs to be better.
constexpr double kPlainSum = 1e-7;

}  // namespace

ConvCheck::ConvCheck(const DeviceContext& device, const CudaContext& context, const ConvProblem& problem,
                     const ConvPointers& tensors)
    : device_(device),
      context_(context),
      problem_(problem),
      samples_(kConvSamples),
      values_(device.memory().allocate(kConvSamples * sizeof(float), kCheckPurpose)),
      comparison_(device.memory().allocate(2 * sizeof(float), kCheckPurpose)) {
  const Memory partial = device.memory().allocate(conv_partial_bytes(problem), kCheckPurpose);
  const Memory samples = device.memory().allocate(kConvSamples * sizeof(ConvSample), kCheckPurpose);
  conv_reference(context.stream, problem, tensors, partial.data(), samples.at<ConvSample>(0));
  device.queue().download(samples_.data(), samples.data(), samples.bytes());
  device.queue().synchronize();
  for (const ConvSample& sample : samples_) size_ = std::max(size_, std::sqrt(sample.squares));
}

// Relative to the root of the sum of the squared products, which is sqrt(terms) times their size, and to the value.
double ConvCheck::allowed(double value) const {
  const double tolerance = part_allowed(problem_.precision);
  const double of_sums = kPlainSum * std::sqrt(static_cast<double>(conv_terms(problem_)));
  return std::max(kTestsProducts * tolerance, of_sums) * size_ + tolerance * std::fabs(value);
}

std::string ConvCheck::difference(const void* result, std::size_t count, int times) const {
  std::array<float, kConvSamples> values{};
  std::array<float, 2> comparison{};
  conv_results(context_.stream, problem_, result, values_.at<float>(0));
  // True for infinities and NaN.
  compare(context_.stream, context_.element(), result, result, count, comparison_.at<float>(0));
  device_.queue().download(values.data(), values_.data(), sizeof(values));
  device_.queue().download(comparison.data(), comparison_.data(), sizeof(comparison));
  device_.queue().synchronize();
  double most = 0;
  std::size_t worst = 0;
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    const double apart = std::fabs(static_cast<double>(values.at(i)) - times * samples_[i].value);
    const double share = std::isfinite(apart) ? apart / (times * allowed(samples_[i].value)) : HUGE_VAL;
    if (share > most) {
      most = share;
      worst = i;
    }
  }
  if (most > 1) {
    const std::string found = std::isnan(values.at(worst)) ? "NaN" : fmt::format("{:.6g}", values.at(worst));
    return fmt::format("{} instead of {:.6g}", found, times * samples_[worst].value);
  }
  if (comparison[0] != 0) return "not all of it is finite, or written";
  return "";
}

}  // namespace ddp::cuda
