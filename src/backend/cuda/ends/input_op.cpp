#include "backend/cuda/ends/input.h"
#include "base/error.h"

namespace ddp::cuda {
namespace {

class CudaInput final : public EndOp {
 public:
  CudaInput(const CudaContext& context, const InputSpec& spec, Layout layout)
      : context_(context), spec_(spec), layout_(layout) {
    DDP_ASSERT(spec.shape.channels == spec.image.channels && spec.scale.size() == spec.shift.size());
    check(spec.scale.size() <= kMostImageChannels, ExitCode::preflight,
          "images of {} channels exceed the maximum of {} on a GPU", spec.scale.size(), kMostImageChannels);
  }

  void forward(const ForwardArguments& a) override {
    DDP_ASSERT(a.images->step.columns.size() <= kMostColumns);
    load_input(context_, spec_, layout_, a);
  }

 private:
  const CudaContext& context_;
  InputSpec spec_;
  Layout layout_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const InputSpec& spec, Layout layout) {
  return std::make_unique<CudaInput>(context, spec, layout);
}

}  // namespace ddp::cuda
