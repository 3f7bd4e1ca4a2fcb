#include "backend/cuda/pool/pool.h"

namespace ddp::cuda {
namespace {

class CudaPool final : public Op {
 public:
  CudaPool(const CudaContext& context, const PoolSpec& spec, Layout layout)
      : context_(context), spec_(spec), layout_(layout) {}

  OpTraits traits() const override { return {.saved_bytes = pool_saved_bytes(spec_)}; }

  void forward(const ForwardArguments& a) override {
    pool_forward(context_.stream, context_.element(), spec_, layout_, a.x().data(), a.y.data(), a.saved);
  }
  void backward(const BackwardArguments& a) override {
    pool_backward(context_.stream, context_.element(), spec_, layout_, a.dy.data(), a.dx().data(), a.saved);
  }

 private:
  const CudaContext& context_;
  PoolSpec spec_;
  Layout layout_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_pool(const CudaContext& context, const PoolSpec& spec, Layout layout) {
  return std::make_unique<CudaPool>(context, spec, layout);
}

}  // namespace ddp::cuda
