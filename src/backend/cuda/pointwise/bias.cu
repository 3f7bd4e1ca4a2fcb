// Bias, ReLU and 2x2 average pooling after a convolution or a matrix product, in both directions.
//
// Note [Sums in a fixed order]
// The gradient of a bias is a sum over all rows, for each channel. The division of rows into chunks depends only on
// their number. A block adds one chunk: each of its 32 lines of threads takes every 32nd row, and the lines are added
// in order. A second kernel adds the chunks: thread t takes every 256th, and a binary tree adds the threads. There are
// no atomics, so the sum has the same bits in every run.
#include "backend/arithmetic.h"
#include "backend/cuda/code/vector.cuh"
#include "backend/cuda/pointwise/pointwise.h"

namespace ddp::cuda {
namespace {

constexpr unsigned kBiasLines = 32;
constexpr unsigned kBiasColumns = 32;
// Up to this many rows one chunk is used, which saves the second kernel.
constexpr std::int64_t kRowsOfOneChunk = 512;
constexpr std::int64_t kRowsPerChunk = 128;
constexpr std::int64_t kMostChunks = 1024;

std::int64_t chunks_of(std::int64_t rows) {
  if (rows <= kRowsOfOneChunk) return 1;
  const std::int64_t chunks = (rows + kRowsPerChunk - 1) / kRowsPerChunk;
  return chunks < kMostChunks ? chunks : kMostChunks;
}

__device__ float bias_at(const float* bias, std::uint32_t channel) { return bias == nullptr ? 0.0F : bias[channel]; }

// A thread processes kWidth contiguous channels.
template <unsigned kWidth, class T>
__global__ void add_bias_kernel(T* y, const float* bias, std::uint32_t vectors, std::uint32_t channels,
                                bool with_relu) {
  for (std::size_t i = first_index(); i < vectors; i += index_step()) {
    const std::uint32_t channel = static_cast<std::uint32_t>(i) % (channels / kWidth) * kWidth;
    float values[kWidth];
    get_some(y, i * kWidth, values);
    for (unsigned j = 0; j < kWidth; ++j) {
      const float value = values[j] + bias_at(bias, channel + j);
      values[j] = with_relu ? relu(value) : value;
    }
    put_some(y, i * kWidth, values);
  }
}

// One thread computes one pooled value. `height` and `width` are those of the convolution.
template <class T>
__global__ void add_bias_relu_pool_kernel(const T* convolved, const float* bias, T* y, std::uint32_t count,
                                          std::uint32_t height, std::uint32_t width, std::uint32_t channels) {
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    auto rest = static_cast<std::uint32_t>(i);
    const std::uint32_t channel = rest % channels;
    rest /= channels;
    const std::uint32_t column = rest % (width / 2);
    rest /= width / 2;
    const std::uint32_t row = rest % (height / 2);
    const std::uint32_t sample = rest / (height / 2);
    const std::size_t upper =
        ((static_cast<std::size_t>(sample) * height + 2 * row) * width + 2 * column) * channels + channel;
    const std::size_t lower = upper + static_cast<std::size_t>(width) * channels;
    const float b = bias_at(bias, channel);
    put(y, i,
        average_of_four(relu(get(convolved, upper) + b), relu(get(convolved, upper + channels) + b),
                        relu(get(convolved, lower) + b), relu(get(convolved, lower + channels) + b)));
  }
}

// Where the gradient before bias and activation comes from.
enum class After { nothing, relu, relu_and_pool };

template <class T>
struct Gradient {
  const T* dy;
  const T* y;
  const T* convolved;
  const float* bias;
  T* dpre;
  std::uint32_t channels, height, width;
};

template <After kAfter, class T>
__device__ float gradient_at(const Gradient<T>& g, std::size_t row, std::uint32_t channel) {
  const std::size_t i = row * g.channels + channel;
  if constexpr (kAfter == After::nothing) {
    return get(g.dy, i);
  } else if constexpr (kAfter == After::relu) {
    const float value = relu_gradient(get(g.y, i), get(g.dy, i));
    put(g.dpre, i, value);
    return value;
  } else {
    const auto position = static_cast<std::uint32_t>(row);
    const std::uint32_t column = position % g.width;
    const std::uint32_t line = position / g.width % g.height;
    const std::uint32_t sample = position / g.width / g.height;
    const std::size_t pooled =
        (static_cast<std::size_t>(sample) * (g.height / 2) + line / 2) * (g.width / 2) + column / 2;
    const float value =
        relu_gradient(get(g.convolved, i) + bias_at(g.bias, channel), 0.25F * get(g.dy, pooled * g.channels + channel));
    put(g.dpre, i, value);
    return value;
  }
}

// Block (chunk, group of channels) of kBiasColumns x kBiasLines threads; see Note [Sums in a fixed order]. If `sums` is null,
// only the gradient before bias and activation is written.
template <After kAfter, class T>
__global__ void __launch_bounds__(kBiasColumns* kBiasLines)
    bias_backward_kernel(const Gradient<T> g, float* sums, std::size_t rows, std::size_t rows_per_chunk) {
  __shared__ float lines[kBiasLines][kBiasColumns];
  const std::uint32_t channel = blockIdx.y * kBiasColumns + threadIdx.x;
  const std::size_t first = blockIdx.x * rows_per_chunk;
  const std::size_t end = first + rows_per_chunk < rows ? first + rows_per_chunk : rows;
  float sum = 0.0F;
  if (channel < g.channels) {
    for (std::size_t row = first + threadIdx.y; row < end; row += kBiasLines)
      sum += gradient_at<kAfter>(g, row, channel);
  }
  if (sums == nullptr) return;
  lines[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || channel >= g.channels) return;
  for (unsigned line = 1; line < kBiasLines; ++line) sum += lines[line][threadIdx.x];
  sums[static_cast<std::size_t>(blockIdx.x) * g.channels + channel] = sum;
}

// Block c adds up the chunks of channel c.
__global__ void add_chunks_kernel(const float* partial, float* sums, std::uint32_t chunks, std::uint32_t channels) {
  __shared__ float tree[kThreads];
  float sum = 0.0F;
  for (std::uint32_t chunk = threadIdx.x; chunk < chunks; chunk += kThreads) {
    sum += partial[static_cast<std::size_t>(chunk) * channels + blockIdx.x];
  }
  tree[threadIdx.x] = sum;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) tree[threadIdx.x] += tree[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = tree[0];
}

template <After kAfter, class T>
void launch_bias_backward(cudaStream_t stream, const BiasBackward& a) {
  const std::int64_t chunks = chunks_of(a.rows);
  const Gradient<T> gradient{as<T>(a.dy),
                             as<T>(a.y),
                             as<T>(a.convolved),
                             a.bias,
                             as<T>(a.dpre),
                             static_cast<std::uint32_t>(a.channels),
                             static_cast<std::uint32_t>(a.height),
                             static_cast<std::uint32_t>(a.width)};
  const dim3 blocks(static_cast<unsigned>(chunks),
                    static_cast<unsigned>((a.channels + kBiasColumns - 1) / kBiasColumns));
  float* sums = chunks == 1 || a.bias_gradient == nullptr ? a.bias_gradient : a.partial_sums;
  launch(stream, blocks, dim3(kBiasColumns, kBiasLines), bias_backward_kernel<kAfter, T>, gradient, sums, a.rows,
         (a.rows + chunks - 1) / chunks);
  if (chunks == 1 || a.bias_gradient == nullptr) return;
  launch(stream, a.channels, kThreads, add_chunks_kernel, a.partial_sums, a.bias_gradient, chunks, a.channels);
}

}  // namespace

void add_bias(cudaStream_t stream, Element element, bool relu, void* y, const float* bias, std::int64_t rows,
              std::int64_t channels) {
  const std::int64_t count = rows * channels;
  if (count == 0) return;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    constexpr unsigned kWidth = kVector<T>;
    if (channels % kWidth == 0) {
      launch(stream, blocks_for(count / kWidth), kThreads, add_bias_kernel<kWidth, T>, as<T>(y), bias, count / kWidth,
             channels, relu);
    } else {
      launch(stream, blocks_for(count), kThreads, add_bias_kernel<1, T>, as<T>(y), bias, count, channels, relu);
    }
  });
}

void add_bias_relu_pool(cudaStream_t stream, Element element, const void* convolved, const float* bias, void* y,
                        std::int64_t samples, const Shape& convolved_shape) {
  const std::int64_t count = samples * convolved_shape.elements() / 4;
  if (count == 0) return;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(count), kThreads, add_bias_relu_pool_kernel<T>, as<T>(convolved), bias, as<T>(y), count,
           convolved_shape.height, convolved_shape.width, convolved_shape.channels);
  });
}

std::int64_t bias_partial_sums(std::int64_t rows, std::int64_t channels) {
  const std::int64_t chunks = chunks_of(rows);
  return chunks == 1 ? 0 : chunks * channels;
}

void bias_backward(cudaStream_t stream, const BiasBackward& arguments) {
  with_element(arguments.element, [&](auto zero) {
    using T = decltype(zero);
    if (arguments.convolved != nullptr) {
      launch_bias_backward<After::relu_and_pool, T>(stream, arguments);
    } else if (arguments.y != nullptr) {
      launch_bias_backward<After::relu, T>(stream, arguments);
    } else {
      launch_bias_backward<After::nothing, T>(stream, arguments);
    }
  });
}

}  // namespace ddp::cuda
