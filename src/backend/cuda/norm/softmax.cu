// Softmax over channels (backend/ops/softmax.h): a block for some positions, whose threads divide the channels among them, in an
// order that depends on shapes only.
#include <cmath>

#include "backend/cuda/code/rows.cuh"
#include "backend/cuda/norm/norm.h"
#include "backend/ops/softmax.h"

namespace ddp::cuda {
namespace {

// Adjacent threads take adjacent positions along x and channels along y.
__device__ inline std::uint32_t own_position() { return blockIdx.x * blockDim.x + threadIdx.x; }

__device__ inline std::size_t place_of(const Rows& r, std::uint32_t row, std::uint32_t channel) {
  if (r.positions == 0) return static_cast<std::size_t>(row) * r.channels + channel;
  return (static_cast<std::size_t>(row / r.positions) * r.channels + channel) * r.positions + row % r.positions;
}

// Merges the values of all lines of a position.
template <class Merge>
__device__ inline float over_lines(float (&tree)[1][kThreads], float own, Merge merge) {
  __syncthreads();
  tree[0][threadIdx.y * blockDim.x + threadIdx.x] = own;
  merge_lines(tree, merge);
  return tree[0][threadIdx.x];
}
__device__ inline float sum_over_lines(float (&tree)[1][kThreads], float own) {
  return over_lines(tree, own, [](float a, float b) { return a + b; });
}

template <class T>
__global__ void softmax_forward_kernel(const Rows rows, const T* x, T* y) {
  __shared__ float tree[1][kThreads];
  const std::uint32_t row = own_position();
  // All threads of a block take part in its sums.
  const std::uint32_t channels = row < rows.rows ? rows.channels : 0;
  float own = -INFINITY;
  for (std::uint32_t c = threadIdx.y; c < channels; c += blockDim.y) own = fmaxf(own, get(x, place_of(rows, row, c)));
  const float most = over_lines(tree, own, [](float a, float b) { return fmaxf(a, b); });
  own = 0.0F;
  for (std::uint32_t c = threadIdx.y; c < channels; c += blockDim.y) own += expf(get(x, place_of(rows, row, c)) - most);
  const float share = 1.0F / sum_over_lines(tree, own);
  for (std::uint32_t c = threadIdx.y; c < channels; c += blockDim.y) {
    const std::size_t place = place_of(rows, row, c);
    put(y, place, expf(get(x, place) - most) * share);
  }
}

template <class T>
__global__ void softmax_backward_kernel(const Rows rows, const T* y, const T* dy, T* dx) {
  __shared__ float tree[1][kThreads];
  const std::uint32_t row = own_position();
  const std::uint32_t channels = row < rows.rows ? rows.channels : 0;
  float own = 0.0F;
  for (std::uint32_t c = threadIdx.y; c < channels; c += blockDim.y) {
    const std::size_t place = place_of(rows, row, c);
    own += get(y, place) * get(dy, place);
  }
  const float sum = sum_over_lines(tree, own);
  for (std::uint32_t c = threadIdx.y; c < channels; c += blockDim.y) {
    const std::size_t place = place_of(rows, row, c);
    put(dx, place, get(y, place) * (get(dy, place) - sum));
  }
}

class CudaSoftmax final : public Op {
 public:
  CudaSoftmax(const CudaContext& context, const SoftmaxSpec& spec, Layout layout)
      : context_(context), rows_(rows_of(spec.batch, spec.shape, layout)) {
    // In the plain layout the values of a position's channels are far apart, those of adjacent positions are not.
    if (rows_.positions > 0) threads_.x = kPositionsBeside;
    while (threads_.x * threads_.y < kThreads && threads_.y < rows_.channels) threads_.y *= 2;
    while (threads_.x * threads_.y < kThreads) threads_.x *= 2;
    blocks_ = dim3((rows_.rows + threads_.x - 1) / threads_.x);
  }

  OpTraits traits() const override { return {.backward_reads_y = true, .in_place = true}; }

  void forward(const ForwardArguments& a) override {
    if (rows_.rows == 0) return;
    with_element(context_.element(), [&](auto zero) {
      using T = decltype(zero);
      launch(context_.stream, blocks_, threads_, softmax_forward_kernel<T>, rows_, as<T>(a.x().data()),
             as<T>(a.y.data()));
    });
  }
  void backward(const BackwardArguments& a) override {
    if (rows_.rows == 0) return;
    with_element(context_.element(), [&](auto zero) {
      using T = decltype(zero);
      launch(context_.stream, blocks_, threads_, softmax_backward_kernel<T>, rows_, as<T>(a.y.data()),
             as<T>(a.dy.data()), as<T>(a.dx().data()));
    });
  }

 private:
  static constexpr unsigned kPositionsBeside = 32;

  const CudaContext& context_;
  Rows rows_;
  dim3 threads_{1, 1};
  dim3 blocks_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const SoftmaxSpec& spec, Layout layout) {
  return std::make_unique<CudaSoftmax>(context, spec, layout);
}

}  // namespace ddp::cuda
