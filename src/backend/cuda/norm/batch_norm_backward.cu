// Batch normalisation backward. With g the gradient before the activation, n rows, and a = (x - mean) / sqrt(variance +
// epsilon), the gradients are sum(g) of the bias, sum(g a) of the weight, and that of the input
//   weight / sqrt(variance + epsilon) * (g - sum(g) / n - a * sum(g a) / n).
//
// Note [Which gradients pass]
// Whether an activation passes a gradient follows from its output, which need not be read: without a second input, the
// activation's input is recomputed from x, which is read anyway; with one, forward has saved a bit per element.
#include "backend/cuda/norm/batch_norm.cuh"
#include "backend/cuda/norm/norm.h"

namespace ddp::cuda {
namespace {

// See Note [Which gradients pass].
enum class Passing { all, computed, masked };

template <class T>
struct Gradient {
  const T* x;
  const T* dy;
  const std::uint8_t* mask;
  T* dx;
  T* dx2;  // receives g; may be null
  Normalizer normalizer;
  bool streams;
};

// The values read for one element.
template <Passing kPassing, class T, unsigned kWidth>
struct Loaded {
  Pack<T, kWidth> x, dy;
  std::uint8_t mask;

  Loaded() = default;
  __device__ Loaded(const Gradient<T>& g, std::size_t place)
      : x(get_pack<kWidth>(g.x, place)), dy(get_pack<kWidth>(g.dy, place)) {
    if constexpr (kPassing == Passing::masked) mask = g.mask[place / kWidth];
  }

  // x, and the gradient before the activation, whose input is on `lines`.
  __device__ void get(const BlockLines<kWidth>& lines, const Bounds& bounds, float (&values)[kWidth],
                      float (&gradient)[kWidth]) const {
    unpack(x, values);
    unpack(dy, gradient);
    for (unsigned j = 0; j < kWidth; ++j) {
      bool passes = true;
      if constexpr (kPassing == Passing::computed) {
        const Line line = lines.line(j);
        passes = bounds.pass(values[j] * line.scale + line.shift);
      }
      if constexpr (kPassing == Passing::masked) passes = (mask >> j & 1U) != 0;
      if (!passes) gradient[j] = 0.0F;
    }
  }
};

__device__ std::uint32_t tickets[kMostTickets];  // one for each group of channels

struct ParameterGradients {
  float* partial;  // [chunks][2][channels]
  const float* means;
  float* weight;
  float* bias;
  float* input_bias;  // null: none
};

// The sums of g and of g (x - mean) over each chunk of rows, which the last block of a group of channels adds up to the
// gradients of the parameters.
template <Passing kPassing, class T, class A>
__global__ void __launch_bounds__(kThreads, kTileBlocks)
    sums_kernel(const PreviousKernel previous, const Rows rows, const Interleaved tiling, const Gradient<T> g,
                const ParameterGradients p) {
  previous.wait();
  constexpr unsigned kWidth = A::kWidth;
  __shared__ Sums tree[kWidth][kThreads];
  __shared__ Sums chunks[kTogether<kWidth>][kThreads];
  __shared__ BlockLines<kWidth> inputs;
  const std::uint32_t channel = tiling.channel(kWidth);
  if constexpr (kPassing == Passing::computed) {
    inputs.fill(g.normalizer, channel, rows.channels);
    __syncthreads();
  }
  Sums sums[kWidth] = {};
  if (channel < rows.channels) {
    float mean[kWidth];
    for (unsigned j = 0; j < kWidth; ++j) mean[j] = g.normalizer.means[channel + j];
    using Read = Loaded<kPassing, T, kWidth>;
    const auto load = [&](std::uint32_t row) { return Read(g, A::place(rows, row, channel)); };
    each_row<2, From::end>(rows, tiling, load, [&](std::uint32_t row, const Read& loaded) {
      float values[kWidth];
      float gradient[kWidth];
      loaded.get(inputs, g.normalizer.bounds, values, gradient);
      if (g.dx2 != nullptr) put_some(g.dx2, A::place(rows, row, channel), gradient);
      for (unsigned j = 0; j < kWidth; ++j) {
        sums[j].first += gradient[j];
        sums[j].second += gradient[j] * (values[j] - mean[j]);
      }
    });
  }
  put_chunk_sums(rows, tiling, tree, sums, channel, p.partial);
  if (!is_last_block(tickets + tiling.group(), tiling.chunks())) return;
  each_channel<kWidth>(rows, tiling, p.partial, chunks, [&](std::uint32_t c, const Sums& all) {
    if (p.input_bias != nullptr) p.input_bias[c] = 0.0F;
    p.bias[c] = all.first;
    p.weight[c] = all.second * p.means[rows.channels + c];
  });
}

// Lines of a block's channels; see BlockLines.
template <unsigned kWidth>
struct GradientLines {
  alignas(16) float slope_g[kMostColumns * kWidth];
  alignas(16) float slope_x[kMostColumns * kWidth];
  alignas(16) float shift[kMostColumns * kWidth];

  __device__ void fill(const NormalizerGradient& gradients, std::uint32_t channel, std::uint32_t channels) {
    with_channel_of_thread(channel, kWidth, channels, [&](std::uint32_t mine) {
      const GradientLine line = gradients.line(mine);
      slope_g[thread_of_block()] = line.slope_g;
      slope_x[thread_of_block()] = line.slope_x;
      shift[thread_of_block()] = line.shift;
    });
  }
};

template <Passing kPassing, class T, class A>
__global__ void __launch_bounds__(kThreads, kTileBlocks)
    input_gradient_kernel(const PreviousKernel previous, const Rows rows, const Interleaved tiling, const Gradient<T> g,
                          const NormalizerGradient gradients) {
  previous.wait();
  constexpr unsigned kWidth = A::kWidth;
  __shared__ BlockLines<kWidth> inputs;
  const std::uint32_t channel = tiling.channel(kWidth);
  __shared__ GradientLines<kWidth> coefficients;
  if constexpr (kPassing == Passing::computed) inputs.fill(g.normalizer, channel, rows.channels);
  coefficients.fill(gradients, channel, rows.channels);
  __syncthreads();
  if (channel >= rows.channels) return;
  float slope_g[kWidth];
  float slope_x[kWidth];
  float shift[kWidth];
  get_some(coefficients.slope_g, threadIdx.x * kWidth, slope_g);
  get_some(coefficients.slope_x, threadIdx.x * kWidth, slope_x);
  get_some(coefficients.shift, threadIdx.x * kWidth, shift);
  using Read = Loaded<kPassing, T, kWidth>;
  const auto load = [&](std::uint32_t row) { return Read(g, A::place(rows, row, channel)); };
  each_row<2, From::begin>(rows, tiling, load, [&](std::uint32_t row, const Read& loaded) {
    float values[kWidth];
    float gradient[kWidth];
    loaded.get(inputs, g.normalizer.bounds, values, gradient);
    for (unsigned j = 0; j < kWidth; ++j) {
      gradient[j] = slope_g[j] * gradient[j] + (slope_x[j] * values[j] + shift[j]);
    }
    const std::size_t place = A::place(rows, row, channel);
    g.streams ? put_streaming(g.dx, place, gradient) : put_some(g.dx, place, gradient);
  });
}

// Calls f with how gradients pass and with what the kernels take.
template <class F>
void with_gradient(Element element, const BatchNormSpec& spec, Layout layout, const BatchNormBackward& a, F f) {
  const Rows rows = rows_of(a.samples, spec.shape, layout);
  const Normalizer normalizer = normalizer_of(spec, a.means, a.weight, a.bias);
  with_rows(element, rows, [&](auto zero, auto access) {
    using T = decltype(zero);
    const Gradient<T> gradient{as<T>(a.x), as<T>(a.dy), a.mask, as<T>(a.dx), as<T>(a.dx2), normalizer, a.streams};
    if (spec.activation == Activation::none) {
      f(rows, gradient, access, std::integral_constant<Passing, Passing::all>{});
    } else if (spec.add) {
      f(rows, gradient, access, std::integral_constant<Passing, Passing::masked>{});
    } else {
      f(rows, gradient, access, std::integral_constant<Passing, Passing::computed>{});
    }
  });
}

}  // namespace

void batch_norm_sums(cudaStream_t stream, Element element, const BatchNormSpec& spec, Layout layout,
                     const BatchNormBackward& a) {
  const ParameterGradients parameters{a.partial_sums, a.means, a.weight_gradient, a.bias_gradient,
                                      a.input_bias_gradient};
  with_gradient(element, spec, layout, a, [&](const Rows& rows, auto gradient, auto access, auto passing) {
    using A = decltype(access);
    using T = std::remove_cvref_t<decltype(*gradient.dx)>;
    const Interleaved tiling(rows, A::kWidth);
    launch(stream, tiling.blocks(), tiling.threads(), sums_kernel<decltype(passing)::value, T, A>, rows, tiling,
           gradient, parameters);
  });
}

void batch_norm_input_gradient(cudaStream_t stream, Element element, const BatchNormSpec& spec, Layout layout,
                               const BatchNormBackward& a) {
  with_gradient(element, spec, layout, a, [&](const Rows& rows, auto gradient, auto access, auto passing) {
    using A = decltype(access);
    using T = std::remove_cvref_t<decltype(*gradient.dx)>;
    const Interleaved tiling(rows, A::kWidth);
    // Statistics that are kept do not depend on x.
    const float share = spec.frozen ? 0.0F : 1.0F / static_cast<float>(rows.rows);
    const NormalizerGradient gradients{a.means, a.weight, a.weight_gradient, a.bias_gradient, rows.channels, share};
    auto kernel = input_gradient_kernel<decltype(passing)::value, T, A>;
    if (a.dx2 != nullptr) {
      // The gradient before the activation is stored there.
      gradient.dy = gradient.dx2;
      kernel = input_gradient_kernel<Passing::all, T, A>;
    }
    launch(stream, tiling.blocks(), tiling.threads(), kernel, rows, tiling, gradient, gradients);
  });
}

}  // namespace ddp::cuda
