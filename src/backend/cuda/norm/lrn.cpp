#include "backend/cuda/norm/norm.h"
#include "backend/workspace.h"

namespace ddp::cuda {
namespace {

class CudaLrn final : public Op {
 public:
  CudaLrn(const CudaContext& context, const LrnSpec& spec, Layout layout)
      : context_(context),
        spec_(spec),
        layout_(layout),
        products_(space_.add<float>(spec.batch * spec.shape.elements())) {}

  OpTraits traits() const override { return {.workspace_bytes = space_.bytes(), .backward_reads_inputs = {0}}; }

  void forward(const ForwardArguments& a) override {
    lrn_forward(context_.stream, context_.element(), spec_, layout_, a.x().data(), a.y.data());
  }
  void backward(const BackwardArguments& a) override {
    lrn_backward(context_.stream, context_.element(), spec_, layout_, a.x().data(), a.dy.data(), a.dx().data(),
                 products_.in(a.workspace));
  }

 private:
  const CudaContext& context_;
  LrnSpec spec_;
  Layout layout_;
  Workspace space_;
  Workspace::Part<float> products_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const LrnSpec& spec, Layout layout) {
  return std::make_unique<CudaLrn>(context, spec, layout);
}

}  // namespace ddp::cuda
