// The kernels that can compute a spec on a GPU: cuDNN's or cuBLASLt's, and our own where they compute the same.
//
//   CudaCandidates candidates(device, context);
//   std::vector<Candidate> worth_timing = candidates.list(conv, Layout::nhwc, Layout::nhwc, ChoiceMode::timed);
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/vendor/context.h"

namespace ddp::cuda {

// Joined operators are taken only where they are timed as faster: no GPU has shown a gain yet.
class CudaCandidates final : public KernelCandidates {
 public:
  // Both must outlive this object.
  CudaCandidates(const DeviceContext& device, const CudaContext& context) : device_(device), context_(context) {}

  std::vector<Candidate> list(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode) override;
  double seconds(std::span<const OpSpec> specs, Layout x, Layout y, Op& op) override;
  bool is_right(std::span<const OpSpec> specs, Op& joined) override;
  bool expects_gain(std::span<const OpSpec> /*specs*/) const override { return false; }

 private:
  std::vector<Candidate> timed(const OpSpec& spec, Layout x) const;
  bool trusts(const OpSpec& spec, const std::string& own, const std::string& library) const;

  const DeviceContext& device_;
  const CudaContext& context_;
};

// The same of a GPU that is only described: where nothing runs, all is expected.
class DescribedCandidates final : public KernelCandidates {
 public:
  // It must outlive this object.
  explicit DescribedCandidates(const CudaContext& context) : context_(context) {}

  std::vector<Candidate> list(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode) override;
  double seconds(std::span<const OpSpec> specs, Layout x, Layout y, Op& op) override;
  bool expects_gain(std::span<const OpSpec> /*specs*/) const override { return false; }

 private:
  const CudaContext& context_;
};

}  // namespace ddp::cuda
