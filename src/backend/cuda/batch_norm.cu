// Batch normalisation forward: moments of each channel, and the normalisation.
#include "backend/cuda/activate.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/rows.cuh"

namespace ddp::cuda {
namespace {

__device__ std::uint32_t tickets[kMostTickets];  // one for each group of channels

struct Statistics {
  float* partial;           // [chunks][2][channels], means, then sums of squared deviations
  float* means;             // [2][channels]: means, then 1 / sqrt(variance + epsilon)
  float* running;           // [2][channels]
  const float* input_bias;  // null: none
  float epsilon, momentum;
};

struct MomentsOfChunks : Moments {
  static __device__ MomentsOfChunks of(std::uint32_t rows, float mean, float squares) {
    return {{static_cast<float>(rows), mean, squares}};
  }
};
__device__ inline MomentsOfChunks merged(const MomentsOfChunks& a, const MomentsOfChunks& b) {
  return {merged(static_cast<const Moments&>(a), static_cast<const Moments&>(b))};
}

__device__ inline void put_statistics(const Rows& rows, const Statistics& s, std::uint32_t channel,
                                      const Moments& all) {
  const float variance = all.squares / all.count;
  s.means[channel] = all.mean;
  s.means[rows.channels + channel] = 1.0F / std::sqrt(variance + s.epsilon);
  const float unbiased = all.count > 1.0F ? all.squares / (all.count - 1.0F) : variance;
  float* running = s.running + channel;
  const float mean = s.input_bias == nullptr ? all.mean : all.mean + s.input_bias[channel];
  running[0] += s.momentum * (mean - running[0]);
  running[rows.channels] += s.momentum * (unbiased - running[rows.channels]);
}

// The moments of each chunk of rows, which the last block of a group of channels merges to those of the batch. All
// threads use the chunk's first row as the shift, so that their sums can simply be added: rounding errors grow at most
// with the rows of a chunk, and only if the first row is an outlier.
template <class T, class A>
__global__ void __launch_bounds__(kThreads, kTileBlocks)
    moments_kernel(const Rows rows, const Tiling tiling, const T* x, const Statistics s) {
  constexpr unsigned kWidth = A::kWidth;
  __shared__ Sums tree[kWidth][kThreads];
  __shared__ MomentsOfChunks chunks[kTogether<kWidth>][kThreads];
  const std::uint32_t channel = tiling.channel(kWidth);
  const bool inside = channel < rows.channels;
  const std::uint32_t begin = tiling.begin_of(tiling.chunk());
  float shift[kWidth] = {};
  Sums sums[kWidth] = {};
  if (inside && begin < rows.rows) {
    get_some(x, A::place(rows, begin, channel), shift);
    const auto load = [&](std::uint32_t row) { return get_pack<kWidth>(x, A::place(rows, row, channel)); };
    each_row<4>(rows, tiling, load, [&](std::uint32_t /*row*/, const Pack<T, kWidth>& pack) {
      float values[kWidth];
      unpack(pack, values);
      for (unsigned j = 0; j < kWidth; ++j) {
        const float apart = values[j] - shift[j];
        sums[j].first += apart;
        sums[j].second += apart * apart;
      }
    });
  }
  const unsigned thread = thread_of_block();
  for (unsigned j = 0; j < kWidth; ++j) tree[j][thread] = sums[j];
  merge_lines(tree, added);
  if (threadIdx.y == 0 && inside) {
    const auto count = static_cast<float>(tiling.rows_in(rows, tiling.chunk()));
    float* means = s.partial + static_cast<std::size_t>(tiling.chunk()) * 2 * rows.channels + channel;
    for (unsigned j = 0; j < kWidth; ++j) {
      const Moments moments = shifted_moments(count, shift[j], tree[j][thread].first, tree[j][thread].second);
      means[j] = moments.mean;
      means[rows.channels + j] = moments.squares;
    }
  }
  if (!is_last_block(tickets + tiling.group(), tiling.chunks())) return;
  each_channel<kWidth>(rows, tiling, s.partial, chunks,
                       [&](std::uint32_t c, const Moments& all) { put_statistics(rows, s, c, all); });
}

template <class T>
struct Normalization {
  const T* x;
  const T* x2;  // null: none
  T* y;
  std::uint8_t* mask;  // null: none; see batch_norm_mask_bytes()
  const float* weight;
  const float* bias;
  const float* input_bias;  // null: none, or it cancels out
  const float* means;       // [2][channels]: means, then variances or 1 / sqrt(variance + epsilon)
  bool variances;
  float epsilon;
  Bounds bounds;
};

template <bool kAdd, class T, class A>
__global__ void __launch_bounds__(kThreads, kTileBlocks)
    normalize_kernel(const Rows rows, const Tiling tiling, const Normalization<T> n) {
  constexpr unsigned kWidth = A::kWidth;
  const std::uint32_t channel = tiling.channel(kWidth);
  if (channel >= rows.channels) return;
  float scale[kWidth];
  float shift[kWidth];
  for (unsigned j = 0; j < kWidth; ++j) {
    const float mean = n.means[channel + j] - (n.input_bias == nullptr ? 0.0F : n.input_bias[channel + j]);
    const float spread = n.means[rows.channels + channel + j];
    scale[j] = n.weight[channel + j] * (n.variances ? 1.0F / std::sqrt(spread + n.epsilon) : spread);
    shift[j] = n.bias[channel + j] - mean * scale[j];
  }
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
  each_row<kAdd ? 2 : 4>(rows, tiling, load, [&](std::uint32_t row, const Loaded& loaded) {
    const std::size_t place = A::place(rows, row, channel);
    float values[kWidth];
    float addend[kWidth] = {};
    unpack(loaded.x, values);
    if constexpr (kAdd) unpack(loaded.x2, addend);
    unsigned passes = 0;
    for (unsigned j = 0; j < kWidth; ++j) {
      const float value = values[j] * scale[j] + shift[j] + addend[j];
      passes |= n.bounds.pass(value) ? 1U << j : 0U;
      values[j] = n.bounds.clamp(value);
    }
    put_some(n.y, place, values);
    if (kAdd && n.mask != nullptr) n.mask[place / kWidth] = static_cast<std::uint8_t>(passes);
  });
}

template <class A, class T>
void launch_normalize(cudaStream_t stream, const BatchNormSpec& spec, const BatchNormForward& a, const Rows& rows,
                      const float* means, bool variances, T /*zero*/) {
  const Tiling tiling(rows, A::kWidth);
  const Normalization<T> normalization{as<T>(a.x),
                                       as<T>(a.x2),
                                       as<T>(a.y),
                                       a.mask,
                                       a.weight,
                                       a.bias,
                                       variances ? a.input_bias : nullptr,
                                       means,
                                       variances,
                                       spec.epsilon,
                                       bounds_of(spec.activation)};
  const auto kernel = a.x2 == nullptr ? normalize_kernel<false, T, A> : normalize_kernel<true, T, A>;
  launch(stream, tiling.blocks(), tiling.threads(), kernel, rows, tiling, normalization);
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

void batch_norm_train(cudaStream_t stream, Element element, const BatchNormSpec& spec, Layout layout,
                      const BatchNormForward& a) {
  const Rows rows = rows_of(a.samples, spec.shape, layout);
  with_rows(element, rows, [&](auto zero, auto access) {
    using T = decltype(zero);
    using A = decltype(access);
    const Tiling tiling(rows, A::kWidth);
    const Statistics statistics{a.partial_sums, a.means, a.statistics, a.input_bias, spec.epsilon, spec.momentum};
    launch(stream, tiling.blocks(), tiling.threads(), moments_kernel<T, A>, rows, tiling, as<T>(a.x), statistics);
    launch_normalize<A>(stream, spec, a, rows, a.means, false, zero);
  });
}

void batch_norm_evaluate(cudaStream_t stream, Element element, const BatchNormSpec& spec, Layout layout,
                         const BatchNormForward& a) {
  const Rows rows = rows_of(a.samples, spec.shape, layout);
  with_rows(element, rows, [&](auto zero, auto access) {
    launch_normalize<decltype(access)>(stream, spec, a, rows, a.statistics, true, zero);
  });
}

}  // namespace ddp::cuda
