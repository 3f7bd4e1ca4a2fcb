// Batch normalisation backward. With g the gradient before the activation, n rows, and a = (x - mean) / sqrt(variance +
// epsilon), the gradients are sum(g) of the bias, sum(g a) of the weight, and that of the input
//   weight / sqrt(variance + epsilon) * (g - sum(g) / n - a * sum(g a) / n).
#include "backend/cuda/activate.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/rows.cuh"

namespace ddp::cuda {
namespace {

struct Sums {
  float gradients;  // g
  float products;   // g (x - mean)
};

__device__ Sums added(const Sums& a, const Sums& b) { return {a.gradients + b.gradients, a.products + b.products}; }

template <class T>
struct Gradient {
  const T* x;
  const T* y;  // not read without activation
  const T* dy;
  T* dx;
  T* dx2;              // where g is written; null: nowhere
  const float* means;  // [2][channels]: means, then 1 / sqrt(variance + epsilon)
  const float* weight;
  const float* weight_gradient;
  const float* bias_gradient;
  Activation activation;
};

// What is read at one place.
template <class T, unsigned kWidth>
struct Loaded {
  Pack<T, kWidth> x, y, dy;

  __device__ Loaded() = default;
  __device__ Loaded(const Gradient<T>& g, std::size_t place)
      : x(get_pack<kWidth>(g.x, place)), y{}, dy(get_pack<kWidth>(g.dy, place)) {
    if (g.activation != Activation::none) y = get_pack<kWidth>(g.y, place);
  }

  // The gradient before the activation.
  __device__ void get_gradient(Activation activation, float (&values)[kWidth]) const {
    float results[kWidth];
    unpack(y, results);
    unpack(dy, values);
    for (unsigned j = 0; j < kWidth; ++j) values[j] = activation_gradient(activation, results[j], values[j]);
  }
};

// The sums over each chunk of rows: `partial` is [chunks][2][channels].
template <class T, class A>
__global__ void sums_kernel(const Rows rows, const Tiling tiling, const Gradient<T> g, float* partial) {
  constexpr unsigned kWidth = A::kWidth;
  __shared__ Sums tree[kWidth][kThreads];
  const std::uint32_t channel = tiling.channel(kWidth);
  const bool inside = channel < rows.channels;
  float mean[kWidth] = {};
  Sums sums[kWidth] = {};
  if (inside) {
    for (unsigned j = 0; j < kWidth; ++j) mean[j] = g.means[channel + j];
    const auto load = [&](std::uint32_t row) { return Loaded<T, kWidth>(g, A::place(rows, row, channel)); };
    each_row<2>(rows, tiling, load, [&](std::uint32_t row, const Loaded<T, kWidth>& loaded) {
      float x[kWidth];
      float gradient[kWidth];
      unpack(loaded.x, x);
      loaded.get_gradient(g.activation, gradient);
      if (g.dx2 != nullptr) put_some(g.dx2, A::place(rows, row, channel), gradient);
      for (unsigned j = 0; j < kWidth; ++j) {
        sums[j].gradients += gradient[j];
        sums[j].products += gradient[j] * (x[j] - mean[j]);
      }
    });
  }
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (unsigned j = 0; j < kWidth; ++j) tree[j][thread] = sums[j];
  merge_lines(tree, added);
  if (threadIdx.y != 0 || !inside) return;
  float* result = partial + static_cast<std::size_t>(tiling.chunk()) * 2 * rows.channels + channel;
  for (unsigned j = 0; j < kWidth; ++j) {
    result[j] = tree[j][thread].gradients;
    result[rows.channels + j] = tree[j][thread].products;
  }
}

// Block of kChunkColumns x kChunkLines: sums over chunks to the gradients of weight and bias.
__global__ void parameter_gradients_kernel(const Rows rows, const Tiling tiling, const float* partial,
                                           const float* means, float* weight_gradient, float* bias_gradient,
                                           float* input_bias_gradient) {
  __shared__ Sums tree[1][kThreads];
  const std::uint32_t channel = blockIdx.x * kChunkColumns + threadIdx.x;
  Sums all{0.0F, 0.0F};
  for (std::uint32_t chunk = threadIdx.y; channel < rows.channels && chunk < tiling.chunks(); chunk += kChunkLines) {
    const float* sums = partial + static_cast<std::size_t>(chunk) * 2 * rows.channels + channel;
    all = added(all, {sums[0], sums[rows.channels]});
  }
  tree[0][threadIdx.y * kChunkColumns + threadIdx.x] = all;
  merge_lines(tree, added);
  if (threadIdx.y != 0 || channel >= rows.channels) return;
  if (input_bias_gradient != nullptr) input_bias_gradient[channel] = 0.0F;
  bias_gradient[channel] = tree[0][threadIdx.x].gradients;
  weight_gradient[channel] = tree[0][threadIdx.x].products * means[rows.channels + channel];
}

template <class T, class A>
__global__ void input_gradient_kernel(const Rows rows, const Tiling tiling, const Gradient<T> g) {
  constexpr unsigned kWidth = A::kWidth;
  const std::uint32_t channel = tiling.channel(kWidth);
  if (channel >= rows.channels) return;
  const float share = 1.0F / static_cast<float>(rows.rows);
  float mean[kWidth];
  float scale[kWidth];
  float shift[kWidth];
  float slope[kWidth];
  for (unsigned j = 0; j < kWidth; ++j) {
    mean[j] = g.means[channel + j];
    const float spread = g.means[rows.channels + channel + j];
    scale[j] = g.weight[channel + j] * spread;
    shift[j] = g.bias_gradient[channel + j] * share;
    slope[j] = g.weight_gradient[channel + j] * share * spread;
  }
  const auto load = [&](std::uint32_t row) { return Loaded<T, kWidth>(g, A::place(rows, row, channel)); };
  each_row<2>(rows, tiling, load, [&](std::uint32_t row, const Loaded<T, kWidth>& loaded) {
    float x[kWidth];
    float gradient[kWidth];
    unpack(loaded.x, x);
    loaded.get_gradient(g.activation, gradient);
    for (unsigned j = 0; j < kWidth; ++j) {
      gradient[j] = scale[j] * (gradient[j] - shift[j] - (x[j] - mean[j]) * slope[j]);
    }
    put_some(g.dx, A::place(rows, row, channel), gradient);
  });
}

}  // namespace

void batch_norm_backward(cudaStream_t stream, Element element, const BatchNormSpec& spec, Layout layout,
                         const BatchNormBackward& a) {
  const Rows rows = rows_of(a.samples, spec.shape, layout);
  with_rows(element, rows, [&](auto zero, auto access) {
    using T = decltype(zero);
    using A = decltype(access);
    const Tiling tiling(rows, A::kWidth);
    Gradient<T> gradient{as<T>(a.x), as<T>(a.y), as<T>(a.dy),       as<T>(a.dx),     as<T>(a.dx2),
                         a.means,    a.weight,   a.weight_gradient, a.bias_gradient, spec.activation};
    launch(stream, tiling.blocks(), tiling.threads(), sums_kernel<T, A>, rows, tiling, gradient, a.partial_sums);
    launch(stream, chunk_blocks(rows.channels), dim3(kChunkColumns, kChunkLines), parameter_gradients_kernel, rows,
           tiling, a.partial_sums, a.means, a.weight_gradient, a.bias_gradient, a.input_bias_gradient);
    if (a.dx2 != nullptr) {
      // There the gradient before the activation lies ready.
      gradient.dy = gradient.dx2;
      gradient.activation = Activation::none;
    }
    launch(stream, tiling.blocks(), tiling.threads(), input_gradient_kernel<T, A>, rows, tiling, gradient);
  });
}

}  // namespace ddp::cuda
