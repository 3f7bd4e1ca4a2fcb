// Softmax cross-entropy: computes loss, gradient and number of correct predictions from logits, in one block, so that
// the loss is summed in a fixed order without a second kernel. It is a small part of a step for up to some thousands of
// classes.
#include "backend/cuda/ends/loss.cuh"
#include "backend/cuda/vendor/context.h"

namespace ddp::cuda {
namespace {

constexpr unsigned kBlock = 1024;

template <unsigned kGroup, class T>
__global__ void __launch_bounds__(kBlock) softmax_cross_entropy_kernel(LossInputs in, const T* logits, T* gradient) {
  if (in.loss_scale != nullptr) in.gradient_scale *= static_cast<float>(*in.loss_scale);
  __shared__ double tree[kBlock];
  double loss = 0;
  double correct = 0;
  // All threads run the same number of iterations, because those of a warp exchange values.
  for (std::uint32_t first = 0; first < in.batch; first += kBlock / kGroup) {
    const std::uint32_t sample = first + threadIdx.x / kGroup;
    const std::size_t begin = static_cast<std::size_t>(sample) * in.classes;
    const SampleLoss mine = sample_loss<kGroup, 4>(in, sample, target_of(in, sample), logits + begin,
                                                   gradient == nullptr ? gradient : gradient + begin);
    loss += mine.loss;
    correct += mine.correct;
  }
  loss = sum_of_block(tree, loss);
  correct = sum_of_block(tree, correct);
  if (threadIdx.x == 0) {
    *in.loss_sum = loss;
    *in.correct += correct;
  }
}

class CudaLoss final : public EndOp {
 public:
  CudaLoss(const CudaContext& context, const LossSpec& spec) : context_(context), spec_(spec) {}

  void forward(const ForwardArguments& a) override {
    const LossInputs in = loss_inputs(spec_, a);
    with_element(context_.element(), [&](auto zero) {
      using T = decltype(zero);
      const T* logits = as<T>(a.x().data());
      T* gradient = as<T>(a.loss->gradient.data());
      // With few classes, 8 samples share a warp, most of which would otherwise be idle.
      if (spec_.classes <= 32) {
        launch(context_.stream, 1, kBlock, softmax_cross_entropy_kernel<4, T>, in, logits, gradient);
      } else {
        launch(context_.stream, 1, kBlock, softmax_cross_entropy_kernel<32, T>, in, logits, gradient);
      }
    });
  }

 private:
  const CudaContext& context_;
  LossSpec spec_;
};

}  // namespace

// Logits are the same in both layouts.
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const LossSpec& spec, Layout /*layout*/) {
  return std::make_unique<CudaLoss>(context, spec);
}

}  // namespace ddp::cuda
