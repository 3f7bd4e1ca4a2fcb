#include "backend/cuda/candidates/cuda_candidates.h"

#include "backend/cuda/candidates/op_set.h"
#include "backend/cuda/candidates/op_trial.h"
#include "backend/cuda/candidates/timing.h"
#include "backend/cuda/conv/conv.h"

namespace ddp::cuda {
namespace {

// The kernels of the libraries for a spec; `find` finds them for a convolution, which alone leaves a choice.
template <class Find>
std::string library_kernels(const OpSpec& spec, Find find) {
  if (const auto* transposed = std::get_if<ConvTransposeSpec>(&spec)) return to_text(find(transposed->mirror()), true);
  const auto* conv = std::get_if<ConvSpec>(&spec);
  return conv == nullptr ? "" : to_text(find(*conv), conv->input_gradient);
}

template <class Find>
Candidate by_rule(const CudaContext& context, const OpSpec& spec, Layout x, Find find) {
  const double guess = guessed_seconds({&spec, 1}, context);
  if (const char* own = own_by_rule(context, spec)) return {own, guess};
  if (mma_only(spec, x)) return {kMmaKernels, kNever};  // not compared with a library
  return {library_kernels(spec, find), guess};
}

}  // namespace

std::vector<Candidate> CudaCandidates::list(const OpSpec& spec, Layout x, Layout /*y*/, ChoiceMode mode) {
  if (mode == ChoiceMode::timed) return timed(spec, x);
  return {
      by_rule(context_, spec, x, [&](const ConvSpec& conv) { return first_conv_kernels(device_, context_, conv); })};
}

std::vector<Candidate> CudaCandidates::timed(const OpSpec& spec, Layout x) const {
  if (mma_only(spec, x)) {
    if (trusts(spec, kMmaKernels, "")) return {Candidate{kMmaKernels}};
    return {Candidate{kMmaKernels, kNever}};
  }
  const std::string library =
      library_kernels(spec, [&](const ConvSpec& conv) { return fastest_conv_kernels(device_, context_, conv); });
  std::vector<Candidate> candidates = {Candidate{library}};
  for (const std::string& own : own_kernels(context_, spec)) {
    if (trusts(spec, own, library)) candidates.push_back({own});
  }
  return candidates;
}

// Own kernels in fp32 only where they have computed what a library does.
bool CudaCandidates::trusts(const OpSpec& spec, const std::string& own, const std::string& library) const {
  return context_.element() == Element::bf16 || agrees_with_library(device_, context_, spec, own, library);
}

double CudaCandidates::seconds(std::span<const OpSpec> specs, Layout /*x*/, Layout /*y*/, Op& op) {
  return op_seconds(device_, context_, specs, op);
}

bool CudaCandidates::is_right(std::span<const OpSpec> specs, Op& joined) {
  return agrees_with_separate(device_, context_, specs, joined);
}

std::vector<Candidate> DescribedCandidates::list(const OpSpec& spec, Layout x, Layout /*y*/, ChoiceMode /*mode*/) {
  return {by_rule(context_, spec, x, [&](const ConvSpec& conv) { return expected_conv_kernels(context_, conv); })};
}

double DescribedCandidates::seconds(std::span<const OpSpec> specs, Layout /*x*/, Layout /*y*/, Op& /*op*/) {
  return guessed_seconds(specs, context_);
}

}  // namespace ddp::cuda
