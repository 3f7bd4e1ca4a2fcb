// Batch normalisation forward: moments of each channel, and what follows from them.
#include "backend/cuda/activate.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/rows.cuh"

namespace ddp::cuda {
namespace {

// The moments of each chunk of rows: `partial` is [chunks][2][channels], means, then sums of squared deviations. A
// thread takes its first row as the shift.
template <class T, class A>
__global__ void moments_kernel(const Rows rows, const Tiling tiling, const T* x, float* partial) {
  constexpr unsigned kWidth = A::kWidth;
  __shared__ Moments tree[kWidth][kThreads];
  const std::uint32_t channel = tiling.channel(kWidth);
  const bool inside = channel < rows.channels;
  float shift[kWidth] = {};
  float sum[kWidth] = {};
  float squares[kWidth] = {};
  std::uint32_t count = 0;
  if (inside) {
    const std::uint32_t first = tiling.first_row();
    if (first < tiling.end_row(rows)) get_some(x, A::place(rows, first, channel), shift);
    const auto load = [&](std::uint32_t row) { return get_pack<kWidth>(x, A::place(rows, row, channel)); };
    each_row<4>(rows, tiling, load, [&](std::uint32_t /*row*/, const Pack<T, kWidth>& pack) {
      float values[kWidth];
      unpack(pack, values);
      for (unsigned j = 0; j < kWidth; ++j) {
        const float apart = values[j] - shift[j];
        sum[j] += apart;
        squares[j] += apart * apart;
      }
      ++count;
    });
  }
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (unsigned j = 0; j < kWidth; ++j) {
    tree[j][thread] = shifted_moments(static_cast<float>(count), shift[j], sum[j], squares[j]);
  }
  merge_lines(tree, merged);
  if (threadIdx.y != 0 || !inside) return;
  float* means = partial + static_cast<std::size_t>(tiling.chunk()) * 2 * rows.channels + channel;
  for (unsigned j = 0; j < kWidth; ++j) {
    means[j] = tree[j][thread].mean;
    means[rows.channels + j] = tree[j][thread].squares;
  }
}

struct Statistics {
  const float* partial;
  float* means;             // [2][channels]: means, then 1 / sqrt(variance + epsilon)
  float* running;           // [2][channels]
  const float* input_bias;  // null: none
  float epsilon, momentum;
};

// Block of kChunkColumns x kChunkLines: moments of the chunks to those of the batch.
__global__ void statistics_kernel(const Rows rows, const Tiling tiling, const Statistics s) {
  __shared__ Moments tree[1][kThreads];
  const std::uint32_t channel = blockIdx.x * kChunkColumns + threadIdx.x;
  Moments all{0.0F, 0.0F, 0.0F};
  for (std::uint32_t chunk = threadIdx.y; channel < rows.channels && chunk < tiling.chunks(); chunk += kChunkLines) {
    const float* means = s.partial + static_cast<std::size_t>(chunk) * 2 * rows.channels + channel;
    all = merged(all, {static_cast<float>(tiling.rows_in(rows, chunk)), means[0], means[rows.channels]});
  }
  tree[0][threadIdx.y * kChunkColumns + threadIdx.x] = all;
  merge_lines(tree, merged);
  if (threadIdx.y != 0 || channel >= rows.channels) return;
  all = tree[0][threadIdx.x];
  const float variance = all.squares / all.count;
  s.means[channel] = all.mean;
  s.means[rows.channels + channel] = 1.0F / std::sqrt(variance + s.epsilon);
  const float unbiased = all.count > 1.0F ? all.squares / (all.count - 1.0F) : variance;
  float* running = s.running + channel;
  const float mean = s.input_bias == nullptr ? all.mean : all.mean + s.input_bias[channel];
  running[0] += s.momentum * (mean - running[0]);
  running[rows.channels] += s.momentum * (unbiased - running[rows.channels]);
}

template <class T>
struct Normalization {
  const T* x;
  const T* x2;  // null: none
  T* y;
  const float* weight;
  const float* bias;
  const float* input_bias;  // null: none, or it cancels out
  const float* means;       // [2][channels]: means, then variances or 1 / sqrt(variance + epsilon)
  bool variances;
  float epsilon;
  Activation activation;
};

template <class T, class A>
__global__ void normalize_kernel(const Rows rows, const Tiling tiling, const Normalization<T> n) {
  constexpr unsigned kWidth = A::kWidth;
  const std::uint32_t channel = tiling.channel(kWidth);
  if (channel >= rows.channels) return;
  float mean[kWidth];
  float scale[kWidth];
  float bias[kWidth];
  for (unsigned j = 0; j < kWidth; ++j) {
    mean[j] = n.means[channel + j] - (n.input_bias == nullptr ? 0.0F : n.input_bias[channel + j]);
    const float spread = n.means[rows.channels + channel + j];
    scale[j] = n.weight[channel + j] * (n.variances ? 1.0F / std::sqrt(spread + n.epsilon) : spread);
    bias[j] = n.bias[channel + j];
  }
  struct Loaded {
    Pack<T, kWidth> x, x2;
  };
  const auto load = [&](std::uint32_t row) {
    const std::size_t place = A::place(rows, row, channel);
    Loaded loaded{};
    loaded.x = get_pack<kWidth>(n.x, place);
    if (n.x2 != nullptr) loaded.x2 = get_pack<kWidth>(n.x2, place);
    return loaded;
  };
  each_row<2>(rows, tiling, load, [&](std::uint32_t row, const Loaded& loaded) {
    float values[kWidth];
    float addend[kWidth];
    unpack(loaded.x, values);
    unpack(loaded.x2, addend);  // zero without a second input
    for (unsigned j = 0; j < kWidth; ++j) {
      values[j] = activate(n.activation, (values[j] - mean[j]) * scale[j] + bias[j] + addend[j]);
    }
    put_some(n.y, A::place(rows, row, channel), values);
  });
}

template <class T>
Normalization<T> normalization_of(const BatchNormSpec& spec, const BatchNormForward& a, const float* means,
                                  bool variances) {
  return {as<T>(a.x), as<T>(a.x2), as<T>(a.y),   a.weight,       a.bias, variances ? a.input_bias : nullptr,
          means,      variances,   spec.epsilon, spec.activation};
}

}  // namespace

std::int64_t batch_norm_partial_sums(Element element, const BatchNormSpec& spec, Layout layout) {
  const Rows rows = rows_of(spec.batch, spec.shape, layout);
  std::int64_t count = 0;
  with_rows(element, rows, [&](auto, auto access) {
    count = std::int64_t{Tiling(rows, decltype(access)::kWidth).chunks()} * 2 * rows.channels;
  });
  return count;
}

void batch_norm_train(cudaStream_t stream, Element element, const BatchNormSpec& spec, Layout layout,
                      const BatchNormForward& a) {
  const Rows rows = rows_of(a.samples, spec.shape, layout);
  with_rows(element, rows, [&](auto zero, auto access) {
    using T = decltype(zero);
    using A = decltype(access);
    const Tiling tiling(rows, A::kWidth);
    launch(stream, tiling.blocks(), tiling.threads(), moments_kernel<T, A>, rows, tiling, as<T>(a.x), a.partial_sums);
    const Statistics statistics{a.partial_sums, a.means, a.statistics, a.input_bias, spec.epsilon, spec.momentum};
    launch(stream, chunk_blocks(rows.channels), dim3(kChunkColumns, kChunkLines), statistics_kernel, rows, tiling,
           statistics);
    launch(stream, tiling.blocks(), tiling.threads(), normalize_kernel<T, A>, rows, tiling,
           normalization_of<T>(spec, a, a.means, false));
  });
}

void batch_norm_evaluate(cudaStream_t stream, Element element, const BatchNormSpec& spec, Layout layout,
                         const BatchNormForward& a) {
  const Rows rows = rows_of(a.samples, spec.shape, layout);
  with_rows(element, rows, [&](auto zero, auto access) {
    using T = decltype(zero);
    using A = decltype(access);
    const Tiling tiling(rows, A::kWidth);
    launch(stream, tiling.blocks(), tiling.threads(), normalize_kernel<T, A>, rows, tiling,
           normalization_of<T>(spec, a, a.statistics, true));
  });
}

}  // namespace ddp::cuda
