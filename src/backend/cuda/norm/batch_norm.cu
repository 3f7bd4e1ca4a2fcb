// Batch normalisation forward: moments of each channel, and the normalisation.
#include "backend/cuda/norm/batch_norm.cuh"
#include "backend/cuda/norm/norm.h"

namespace ddp::cuda {
namespace {

__device__ std::uint32_t tickets[kMostTickets];  // one for each group of channels

// The moments of each chunk of rows, and of the batch. The chunk's first row is the shift: rounding errors grow at most
// with the rows of a chunk, and only if the first row is an outlier.
template <class T, class A>
__global__ void __launch_bounds__(kThreads, kTileBlocks)
    moments_kernel(const PreviousKernel previous, const Rows rows, const Interleaved tiling, const T* x,
                   const Statistics s) {
  previous.wait();
  constexpr unsigned kWidth = A::kWidth;
  __shared__ Sums tree[kWidth][kThreads];
  __shared__ MomentSums chunks[kTogether<kWidth>][kThreads];
  const std::uint32_t channel = tiling.channel(kWidth);
  const bool inside = channel < rows.channels;
  const std::uint32_t begin = tiling.begin_of(tiling.chunk());
  float shift[kWidth] = {};
  Sums sums[kWidth] = {};
  if (inside && begin < rows.rows) {
    get_some(x, A::place(rows, begin, channel), shift);
    const auto load = [&](std::uint32_t row) { return get_pack<kWidth>(x, A::place(rows, row, channel)); };
    each_row<4, From::end>(rows, tiling, load, [&](std::uint32_t /*row*/, const Pack<T, kWidth>& pack) {
      float values[kWidth];
      unpack(pack, values);
      for (unsigned j = 0; j < kWidth; ++j) {
        const float apart = values[j] - shift[j];
        sums[j].first += apart;
        sums[j].second += apart * apart;
      }
    });
  }
  put_moments(rows, tiling, s, shift, sums, tree, chunks, tickets);
}

template <class T>
struct Normalization {
  const T* x;
  const T* x2;  // null: none
  T* y;
  std::uint8_t* mask;  // null: none; see batch_norm_mask_bytes()
  Normalizer normalizer;
  bool streams;
};

template <bool kAdd, class T, class A>
__global__ void __launch_bounds__(kThreads, kTileBlocks)
    normalize_kernel(const PreviousKernel previous, const Rows rows, const Interleaved tiling,
                     const Normalization<T> n) {
  previous.wait();
  constexpr unsigned kWidth = A::kWidth;
  const std::uint32_t channel = tiling.channel(kWidth);
  __shared__ BlockLines<kWidth> lines;
  lines.fill(n.normalizer, channel, rows.channels);
  __syncthreads();
  if (channel >= rows.channels) return;
  float scale[kWidth];
  float shift[kWidth];
  get_some(lines.scale, threadIdx.x * kWidth, scale);
  get_some(lines.shift, threadIdx.x * kWidth, shift);
  struct Loaded {
    Pack<T, kWidth> x, x2;
  };
  const auto load = [&](std::uint32_t row) {
    const std::size_t place = A::place(rows, row, channel);
    Loaded loaded;
    loaded.x = get_pack<kWidth>(n.x, place);
    if constexpr (kAdd) loaded.x2 = get_pack<kWidth>(n.x2, place);
    return loaded;
  };
  each_row<kAdd ? 2 : 4, From::begin>(rows, tiling, load, [&](std::uint32_t row, const Loaded& loaded) {
    const std::size_t place = A::place(rows, row, channel);
    float values[kWidth];
    float addend[kWidth] = {};
    unpack(loaded.x, values);
    if constexpr (kAdd) unpack(loaded.x2, addend);
    unsigned passes = 0;
    for (unsigned j = 0; j < kWidth; ++j) {
      const float value = values[j] * scale[j] + shift[j] + addend[j];
      passes |= n.normalizer.bounds.pass(value) ? 1U << j : 0U;
      values[j] = n.normalizer.bounds.clamp(value);
    }
    n.streams ? put_streaming(n.y, place, values) : put_some(n.y, place, values);
    if (kAdd && n.mask != nullptr) n.mask[place / kWidth] = static_cast<std::uint8_t>(passes);
  });
}

template <class A, class T>
void launch_normalize(cudaStream_t stream, const BatchNormForward& a, const Rows& rows, const Normalizer& normalizer,
                      T /*zero*/) {
  const Interleaved tiling(rows, A::kWidth);
  const Normalization<T> normalization{as<T>(a.x), as<T>(a.x2), as<T>(a.y), a.mask, normalizer, a.streams};
  const auto kernel = a.x2 == nullptr ? normalize_kernel<false, T, A> : normalize_kernel<true, T, A>;
  launch(stream, tiling.blocks(), tiling.threads(), kernel, rows, tiling, normalization);
}

__global__ void keep_kernel(const PreviousKernel previous, const float* running, std::uint32_t channels, float epsilon,
                            float* means) {
  previous.wait();
  const std::uint32_t channel = blockIdx.x * blockDim.x + threadIdx.x;
  if (channel >= channels) return;
  means[channel] = running[channel];
  means[channels + channel] = 1.0F / std::sqrt(running[channels + channel] + epsilon);
}

}  // namespace

std::int64_t batch_norm_partial_sums(Element element, const BatchNormSpec& spec, Layout layout) {
  return chunk_sum_elements(element, rows_of(spec.batch, spec.shape, layout));
}

bool batch_norm_takes(Element element, const BatchNormSpec& spec, Layout layout) {
  const Rows rows = rows_of(spec.batch, spec.shape, layout);
  bool takes = false;
  with_rows(element, rows,
            [&](auto, auto access) { takes = Tiling(rows, decltype(access)::kWidth).groups() <= kMostTickets; });
  return takes;
}

std::int64_t batch_norm_mask_bytes(Element element, const BatchNormSpec& spec, Layout layout) {
  if (!spec.add || spec.activation == Activation::none) return 0;
  std::int64_t count = 0;
  with_rows(element, rows_of(spec.batch, spec.shape, layout),
            [&](auto, auto access) { count = spec.batch * spec.shape.elements() / decltype(access)::kWidth; });
  return count;
}

void batch_norm_moments(cudaStream_t stream, Element element, const BatchNormSpec& spec, Layout layout,
                        const BatchNormForward& a) {
  const Rows rows = rows_of(a.samples, spec.shape, layout);
  with_rows(element, rows, [&](auto zero, auto access) {
    using T = decltype(zero);
    using A = decltype(access);
    const Interleaved tiling(rows, A::kWidth);
    const Statistics statistics{a.partial_sums, a.means,      a.statistics, a.input_bias,
                                rows.channels,  spec.epsilon, spec.momentum};
    launch(stream, tiling.blocks(), tiling.threads(), moments_kernel<T, A>, rows, tiling, as<T>(a.x), statistics);
  });
}

void batch_norm_keep(cudaStream_t stream, const BatchNormSpec& spec, const BatchNormForward& a) {
  const auto channels = static_cast<std::uint32_t>(spec.shape.channels);
  launch(stream, (channels + kThreads - 1) / kThreads, kThreads, keep_kernel, a.statistics, channels, spec.epsilon,
         a.means);
}

void batch_norm_normalize(cudaStream_t stream, Element element, const BatchNormSpec& spec, Layout layout,
                          const BatchNormForward& a) {
  const Rows rows = rows_of(a.samples, spec.shape, layout);
  Normalizer normalizer = normalizer_of(spec, a.means, a.weight, a.bias);
  if (a.means == nullptr) {
    normalizer.means = a.statistics;
    normalizer.variances = true;
    normalizer.input_bias = a.input_bias;
  }
  with_rows(element, rows,
            [&](auto zero, auto access) { launch_normalize<decltype(access)>(stream, a, rows, normalizer, zero); });
}

}  // namespace ddp::cuda
