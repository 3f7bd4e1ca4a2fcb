// GELU and its gradient (backend/ops/gelu.h).
#include "backend/cuda/code/vector.cuh"
#include "backend/cuda/pointwise/pointwise.h"

namespace ddp::cuda {
namespace {

// Phi(x) and its derivative.
struct Distribution {
  float value;
  float density;
};

template <GeluForm kForm>
__device__ inline Distribution distribution_at(float x) {
  if constexpr (kForm == GeluForm::exact) {
    // erfc keeps its precision for negative x, where 1 + erf cancels.
    return {0.5F * erfcf(-0.707106781F * x), 0.398942280F * expf(-0.5F * x * x)};
  } else {
    constexpr float kScale = 0.797884561F;  // sqrt(2 / pi)
    constexpr float kCube = 0.044715F;
    // (1 + tanh(u)) / 2 is the sigmoid of 2 u.
    const float value = 1.0F / (1.0F + expf(-2.0F * kScale * (x + kCube * x * x * x)));
    // Beyond x = 20 the derivative vanishes; its last factor must not overflow before.
    const float square = x * x < 400.0F ? x * x : 400.0F;
    return {value, value * (1.0F - value) * 2.0F * kScale * (1.0F + 3.0F * kCube * square)};
  }
}

template <GeluForm kForm, class T>
__global__ void gelu_forward_kernel(const T* x, T* y, std::size_t count) {
  constexpr unsigned kWidth = kVector<T>;
  for (std::size_t i = first_index() * kWidth; i < count; i += index_step() * kWidth) {
    float values[kWidth];
    get_some(x, i, count, values);
    for (float& value : values) value *= distribution_at<kForm>(value).value;
    put_some(y, i, count, values);
  }
}

template <GeluForm kForm, class T>
__global__ void gelu_backward_kernel(const T* x, const T* dy, T* dx, std::size_t count) {
  constexpr unsigned kWidth = kVector<T>;
  for (std::size_t i = first_index() * kWidth; i < count; i += index_step() * kWidth) {
    float inputs[kWidth];
    float values[kWidth];
    get_some(x, i, count, inputs);
    get_some(dy, i, count, values);
    for (unsigned j = 0; j < kWidth; ++j) {
      const Distribution phi = distribution_at<kForm>(inputs[j]);
      values[j] *= phi.value + inputs[j] * phi.density;
    }
    put_some(dx, i, count, values);
  }
}

template <GeluForm kForm>
class CudaGelu final : public Op {
 public:
  CudaGelu(const CudaContext& context, const GeluSpec& spec)
      : context_(context), count_(static_cast<std::size_t>(spec.batch * spec.shape.elements())) {}

  OpTraits traits() const override { return {.backward_reads_inputs = {0}}; }

  void forward(const ForwardArguments& a) override {
    if (count_ == 0) return;
    with_element(context_.element(), [&](auto zero) {
      using T = decltype(zero);
      launch(context_.stream, vector_blocks_for<T>(count_), kThreads, gelu_forward_kernel<kForm, T>,
             as<T>(a.x().data()), as<T>(a.y.data()), count_);
    });
  }
  void backward(const BackwardArguments& a) override {
    if (count_ == 0) return;
    with_element(context_.element(), [&](auto zero) {
      using T = decltype(zero);
      launch(context_.stream, vector_blocks_for<T>(count_), kThreads, gelu_backward_kernel<kForm, T>,
             as<T>(a.x().data()), as<T>(a.dy.data()), as<T>(a.dx().data()), count_);
    });
  }

 private:
  const CudaContext& context_;
  std::size_t count_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const GeluSpec& spec, Layout /*layout*/) {
  if (spec.form == GeluForm::tanh) return std::make_unique<CudaGelu<GeluForm::tanh>>(context, spec);
  return std::make_unique<CudaGelu<GeluForm::exact>>(context, spec);
}

}  // namespace ddp::cuda
