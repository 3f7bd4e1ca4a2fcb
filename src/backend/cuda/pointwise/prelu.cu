// PReLU (backend/ops/prelu.h).
#include "backend/cuda/code/rows.cuh"
#include "backend/cuda/pointwise/pointwise.h"
#include "backend/workspace.h"

namespace ddp::cuda {
namespace {

template <class T>
__global__ void prelu_kernel(const Rows rows, const T* x, const float* weights, T* y, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    const auto at = static_cast<std::uint32_t>(i);
    const float value = get(x, i);
    const std::uint32_t channel = rows.positions > 0 ? at / rows.positions % rows.channels : at % rows.channels;
    put(y, i, value > 0.0F ? value : weights[channel] * value);
  }
}

// Writes dx, and sums of the gradients of the weights over chunks of rows.
template <class T, class A>
__global__ void prelu_backward_kernel(const Rows rows, const Tiling tiling, const T* x, const float* weights,
                                      const T* dy, T* dx, float* partial) {
  constexpr unsigned kWidth = A::kWidth;
  __shared__ Sums tree[kWidth][kThreads];
  const std::uint32_t channel = tiling.channel(kWidth);
  Sums sums[kWidth] = {};
  if (channel < rows.channels) {
    for (std::uint32_t row = tiling.first_row(); row < tiling.end_row(rows); row += blockDim.y) {
      const std::size_t place = A::place(rows, row, channel);
      float values[kWidth];
      float gradient[kWidth];
      get_some(x, place, values);
      get_some(dy, place, gradient);
      for (unsigned j = 0; j < kWidth; ++j) {
        if (values[j] > 0.0F) continue;
        sums[j].first += gradient[j] * values[j];
        gradient[j] *= weights[channel + j];
      }
      put_some(dx, place, gradient);
    }
  }
  put_chunk_sums(rows, tiling, tree, sums, channel, partial);
}

// Block of kChunkColumns x kChunkLines.
__global__ void __launch_bounds__(kChunkThreads)
    prelu_weights_kernel(const Rows rows, const Tiling tiling, const float* partial, float* gradients) {
  __shared__ Sums tree[1][kChunkThreads];
  const std::uint32_t channel = blockIdx.x * kChunkColumns + threadIdx.x;
  const Sums all = sum_chunks(rows, tiling, tree, channel, partial);
  if (threadIdx.y == 0 && channel < rows.channels) gradients[channel] = all.first;
}

class CudaPrelu final : public Op {
 public:
  CudaPrelu(const CudaContext& context, const PreluSpec& spec, Layout layout)
      : context_(context), count_(static_cast<std::size_t>(spec.batch * spec.shape.elements())) {
    // One weight: the order of the values does not matter, and all belong to one channel.
    const Shape one{1, spec.shape.channels * spec.shape.height, spec.shape.width};
    rows_ = spec.shared ? rows_of(spec.batch, one, Layout::plain) : rows_of(spec.batch, spec.shape, layout);
    partial_ = space_.add<float>(chunk_sum_elements(context.element(), rows_));
  }

  OpTraits traits() const override { return {.workspace_bytes = space_.bytes(), .backward_reads_inputs = {0}}; }

  void forward(const ForwardArguments& a) override {
    if (count_ == 0) return;
    with_element(context_.element(), [&](auto zero) {
      using T = decltype(zero);
      launch(context_.stream, blocks_for(count_), kThreads, prelu_kernel<T>, rows_, as<T>(a.x().data()),
             a.parameters[0], as<T>(a.y.data()), count_);
    });
  }

  void backward(const BackwardArguments& a) override {
    float* partial = partial_.in(a.workspace);
    with_rows(context_.element(), rows_, [&](auto zero, auto access) {
      using T = decltype(zero);
      using A = decltype(access);
      const Tiling tiling(rows_, A::kWidth);
      launch(context_.stream, tiling.blocks(), tiling.threads(), prelu_backward_kernel<T, A>, rows_, tiling,
             as<T>(a.x().data()), a.parameters[0], as<T>(a.dy.data()), as<T>(a.dx().data()), partial);
      launch(context_.stream, chunk_blocks(rows_.channels), dim3(kChunkColumns, kChunkLines), prelu_weights_kernel,
             rows_, tiling, static_cast<const float*>(partial), a.parameter_gradients[0]);
    });
  }

 private:
  const CudaContext& context_;
  std::size_t count_;
  Rows rows_{};
  Workspace space_;
  Workspace::Part<float> partial_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const PreluSpec& spec, Layout layout) {
  return std::make_unique<CudaPrelu>(context, spec, layout);
}

}  // namespace ddp::cuda
