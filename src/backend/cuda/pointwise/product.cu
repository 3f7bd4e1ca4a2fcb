// Products of two activations and their gradients (backend/ops/product.h).
#include "backend/cuda/code/rows.cuh"
#include "backend/cuda/pointwise/pointwise.h"

namespace ddp::cuda {
namespace {

template <class T>
__global__ void multiply_kernel(const T* x, const T* factors, T* y, std::size_t count) {
  constexpr unsigned kWidth = kVector<T>;
  for (std::size_t i = first_index() * kWidth; i < count; i += index_step() * kWidth) {
    float values[kWidth];
    float other[kWidth];
    get_some(x, i, count, values);
    get_some(factors, i, count, other);
    for (unsigned j = 0; j < kWidth; ++j) values[j] *= other[j];
    put_some(y, i, count, values);
  }
}

// The factor of element i is that of its sample and channel.
template <class T>
__global__ void scale_kernel(const Rows rows, std::uint32_t positions, const T* x, const T* factors, T* y,
                             std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t factor =
        rows.positions > 0 ? at / positions : at / (positions * rows.channels) * rows.channels + at % rows.channels;
    put(y, i, get(x, i) * get(factors, factor));
  }
}

inline constexpr unsigned kScaleColumns = 32;

// A block of columns x lines takes the channels of one sample: each line sums every lines-th position, then the lines are
// added by a binary tree.
template <class T, class A>
__global__ void scale_backward_kernel(const Rows rows, std::uint32_t positions, const T* x, const T* factors,
                                      const T* dy, T* dx, T* dfactors) {
  __shared__ float tree[1][kThreads];
  const std::uint32_t groups = (rows.channels + blockDim.x - 1) / blockDim.x;
  const std::uint32_t sample = blockIdx.x / groups;
  const std::uint32_t channel = blockIdx.x % groups * blockDim.x + threadIdx.x;
  const bool inside = channel < rows.channels;
  const std::size_t place = static_cast<std::size_t>(sample) * rows.channels + channel;
  float sum = 0.0F;
  if (inside) {
    const float factor = get(factors, place);
    for (std::uint32_t p = threadIdx.y; p < positions; p += blockDim.y) {
      const std::size_t i = A::place(rows, sample * positions + p, channel);
      const float gradient = get(dy, i);
      sum += gradient * get(x, i);
      put(dx, i, gradient * factor);
    }
  }
  tree[0][threadIdx.y * blockDim.x + threadIdx.x] = sum;
  merge_lines(tree, [](float a, float b) { return a + b; });
  if (threadIdx.y == 0 && inside) put(dfactors, place, tree[0][threadIdx.x]);
}

class CudaProduct final : public Op {
 public:
  CudaProduct(const CudaContext& context, const ProductSpec& spec, Layout layout)
      : context_(context),
        spec_(spec),
        rows_(rows_of(spec.batch, spec.shape, layout)),
        positions_(static_cast<std::uint32_t>(spec.shape.height * spec.shape.width)),
        count_(static_cast<std::size_t>(spec.batch * spec.shape.elements())) {}

  OpTraits traits() const override { return {.backward_reads_inputs = {0, 1}}; }

  void forward(const ForwardArguments& a) override {
    if (count_ == 0) return;
    with_element(context_.element(), [&](auto zero) {
      using T = decltype(zero);
      if (spec_.per_channel) {
        launch(context_.stream, blocks_for(count_), kThreads, scale_kernel<T>, rows_, positions_, as<T>(a.x().data()),
               as<T>(a.inputs[1].data()), as<T>(a.y.data()), count_);
      } else {
        multiply<T>(a.x().data(), a.inputs[1].data(), a.y.data());
      }
    });
  }

  void backward(const BackwardArguments& a) override {
    if (count_ == 0) return;
    with_element(context_.element(), [&](auto zero) {
      using T = decltype(zero);
      if (!spec_.per_channel) {
        multiply<T>(a.dy.data(), a.inputs[1].data(), a.dx().data());
        multiply<T>(a.dy.data(), a.x().data(), a.input_gradients[1].data());
      } else if (rows_.positions > 0) {
        scale_backward<T, Access<1, true>>(1, a);
      } else {
        scale_backward<T, Access<1, false>>(kScaleColumns, a);
      }
    });
  }

 private:
  template <class T>
  void multiply(const void* x, const void* factors, void* y) const {
    launch(context_.stream, vector_blocks_for<T>(count_), kThreads, multiply_kernel<T>, as<T>(x), as<T>(factors),
           as<T>(y), count_);
  }
  template <class T, class A>
  void scale_backward(unsigned columns, const BackwardArguments& a) const {
    const unsigned groups = (rows_.channels + columns - 1) / columns;
    const dim3 blocks(groups * static_cast<unsigned>(spec_.batch));
    const dim3 threads(columns, kThreads / columns);
    launch(context_.stream, blocks, threads, scale_backward_kernel<T, A>, rows_, positions_, as<T>(a.x().data()),
           as<T>(a.inputs[1].data()), as<T>(a.dy.data()), as<T>(a.dx().data()), as<T>(a.input_gradients[1].data()));
  }

  const CudaContext& context_;
  ProductSpec spec_;
  Rows rows_;
  std::uint32_t positions_;
  std::size_t count_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ProductSpec& spec, Layout layout) {
  return std::make_unique<CudaProduct>(context, spec, layout);
}

}  // namespace ddp::cuda
