// Pointwise functions and their gradients (backend/ops/pointwise.h).
#include "backend/cuda/code/vector.cuh"
#include "backend/cuda/pointwise/pointwise.h"

namespace ddp::cuda {
namespace {

__device__ inline float clamped(float x, float low, float high) { return x < low ? low : x > high ? high : x; }
__device__ inline float sigmoid_of(float x) { return 1.0F / (1.0F + expf(-x)); }

template <PointwiseFunction kFunction>
__device__ inline float value_at(float x, float alpha) {
  if constexpr (kFunction == PointwiseFunction::silu) return x * sigmoid_of(x);
  if constexpr (kFunction == PointwiseFunction::hardswish) return x * clamped(x + 3.0F, 0.0F, 6.0F) * (1.0F / 6.0F);
  if constexpr (kFunction == PointwiseFunction::hardsigmoid) return clamped(x + 3.0F, 0.0F, 6.0F) * (1.0F / 6.0F);
  if constexpr (kFunction == PointwiseFunction::leaky_relu) return x > 0.0F ? x : alpha * x;
  if constexpr (kFunction == PointwiseFunction::elu) return x > 0.0F ? x : alpha * expm1f(x);
  if constexpr (kFunction == PointwiseFunction::mish) {
    // With e = e^x and n = e (e + 2): tanh(log(1 + e)) = n / (n + 2); 1 beyond x = 20.
    const float e = expf(clamped(x, -87.0F, 20.0F));
    const float n = e * (e + 2.0F);
    return x * (n / (n + 2.0F));
  }
}

template <PointwiseFunction kFunction>
__device__ inline float slope_at(float x, float alpha) {
  if constexpr (kFunction == PointwiseFunction::silu) {
    const float s = sigmoid_of(x);
    // Beyond -88 the exponential overflows, and 0 times it is not a number.
    return s + clamped(x, -88.0F, 88.0F) * s * (1.0F - s);
  }
  if constexpr (kFunction == PointwiseFunction::hardswish) {
    return x <= -3.0F ? 0.0F : x >= 3.0F ? 1.0F : x * (1.0F / 3.0F) + 0.5F;
  }
  if constexpr (kFunction == PointwiseFunction::hardsigmoid) return x <= -3.0F || x >= 3.0F ? 0.0F : 1.0F / 6.0F;
  if constexpr (kFunction == PointwiseFunction::leaky_relu) return x > 0.0F ? 1.0F : alpha;
  if constexpr (kFunction == PointwiseFunction::elu) return x > 0.0F ? 1.0F : alpha * expf(x);
  if constexpr (kFunction == PointwiseFunction::mish) {
    const float limited = clamped(x, -87.0F, 20.0F);
    const float e = expf(limited);
    const float n = e * (e + 2.0F);
    const float share = 1.0F / (n + 2.0F);
    return n * share + limited * 4.0F * e * (1.0F + e) * share * share;
  }
}

template <PointwiseFunction kFunction, class T>
__global__ void pointwise_forward_kernel(float alpha, const T* x, T* y, std::size_t count) {
  constexpr unsigned kWidth = kVector<T>;
  for (std::size_t i = first_index() * kWidth; i < count; i += index_step() * kWidth) {
    float values[kWidth];
    get_some(x, i, count, values);
    for (float& value : values) value = value_at<kFunction>(value, alpha);
    put_some(y, i, count, values);
  }
}

template <PointwiseFunction kFunction, class T>
__global__ void pointwise_backward_kernel(float alpha, const T* x, const T* dy, T* dx, std::size_t count) {
  constexpr unsigned kWidth = kVector<T>;
  for (std::size_t i = first_index() * kWidth; i < count; i += index_step() * kWidth) {
    float inputs[kWidth];
    float values[kWidth];
    get_some(x, i, count, inputs);
    get_some(dy, i, count, values);
    for (unsigned j = 0; j < kWidth; ++j) values[j] *= slope_at<kFunction>(inputs[j], alpha);
    put_some(dx, i, count, values);
  }
}

template <PointwiseFunction kFunction>
class CudaPointwise final : public Op {
 public:
  CudaPointwise(const CudaContext& context, const PointwiseSpec& spec)
      : context_(context), alpha_(spec.alpha), count_(static_cast<std::size_t>(spec.batch * spec.shape.elements())) {}

  OpTraits traits() const override { return {.backward_reads_inputs = {0}}; }

  void forward(const ForwardArguments& a) override {
    if (count_ == 0) return;
    with_element(context_.element(), [&](auto zero) {
      using T = decltype(zero);
      launch(context_.stream, vector_blocks_for<T>(count_), kThreads, pointwise_forward_kernel<kFunction, T>, alpha_,
             as<T>(a.x().data()), as<T>(a.y.data()), count_);
    });
  }
  void backward(const BackwardArguments& a) override {
    if (count_ == 0) return;
    with_element(context_.element(), [&](auto zero) {
      using T = decltype(zero);
      launch(context_.stream, vector_blocks_for<T>(count_), kThreads, pointwise_backward_kernel<kFunction, T>, alpha_,
             as<T>(a.x().data()), as<T>(a.dy.data()), as<T>(a.dx().data()), count_);
    });
  }

 private:
  const CudaContext& context_;
  float alpha_;
  std::size_t count_;
};

template <PointwiseFunction kFunction>
std::unique_ptr<Op> make(const CudaContext& context, const PointwiseSpec& spec) {
  return std::make_unique<CudaPointwise<kFunction>>(context, spec);
}

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const PointwiseSpec& spec, Layout /*layout*/) {
  switch (spec.function) {
    case PointwiseFunction::silu:
      return make<PointwiseFunction::silu>(context, spec);
    case PointwiseFunction::hardswish:
      return make<PointwiseFunction::hardswish>(context, spec);
    case PointwiseFunction::hardsigmoid:
      return make<PointwiseFunction::hardsigmoid>(context, spec);
    case PointwiseFunction::leaky_relu:
      return make<PointwiseFunction::leaky_relu>(context, spec);
    case PointwiseFunction::elu:
      return make<PointwiseFunction::elu>(context, spec);
    case PointwiseFunction::mish:
      break;
  }
  return make<PointwiseFunction::mish>(context, spec);
}

}  // namespace ddp::cuda
