// The operators of a context, of a GPU or of one that is only described: what the factories of both have in common.
//
//   class CudaOps final : public ContextOps { ... };
#pragma once

#include "backend/cuda/candidates/op_set.h"
#include "backend/cuda/joined/joined.h"
#include "backend/cuda/update/update.h"
#include "backend/op_factory.h"

namespace ddp::cuda {

class ContextOps : public OpFactory {
 public:
  bool supports(const OpSpec& spec, Layout x, Layout y) const final { return has_op(ops_context_, spec, x, y); }
  std::unique_ptr<Op> make_op(const OpSpec& spec, Layout x, Layout y, const std::string& kernels) final {
    return make_cuda_op(ops_context_, spec, x, y, kernels);
  }
  std::unique_ptr<MatrixUpdate> make_matrix_update(std::span<const UpdateMatrix> matrices) final {
    return make_cuda_matrix_update(ops_context_, matrices);
  }
  std::unique_ptr<Op> join(std::span<const OpSpec> specs, Layout layout,
                           std::span<const std::string> /*kernels*/) final {
    return make_cuda_norm_conv1x1(ops_context_, specs, layout);
  }

 protected:
  // `context` may be a member of the derived class.
  explicit ContextOps(const CudaContext& context) : ops_context_(context) {}

 private:
  const CudaContext& ops_context_;
};

}  // namespace ddp::cuda
