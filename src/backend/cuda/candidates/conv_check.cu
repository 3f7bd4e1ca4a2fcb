// Elements of a convolution's result by its definition: sums in fp64 for some hundred elements, a slow reference for
// fast kernels.
#include "backend/cuda/candidates/conv_check.h"
#include "backend/cuda/code/launch.cuh"
#include "backend/cuda/vendor/conv_problem.h"

namespace ddp::cuda {
namespace {

using Count = std::uint32_t;  // operators refuse tensors with more elements

// The threads that share the sum of a sample; each computes a part of it.
constexpr unsigned kPartsOfLong = 256;
constexpr unsigned kPartsOfShort = 4;
constexpr std::int64_t kLong = 8192;

struct Conv {
  ConvDirection direction;
  Count batch, height, width, channels, out_height, out_width, outputs;
  Count kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
  Count group_channels, group_outputs;  // of one group

  __device__ std::size_t x_at(Count n, Count row, Count column, Count channel) const {
    return ((static_cast<std::size_t>(n) * height + row) * width + column) * channels + channel;
  }
  __device__ std::size_t y_at(Count n, Count row, Count column, Count output) const {
    return ((static_cast<std::size_t>(n) * out_height + row) * out_width + column) * outputs + output;
  }
  __device__ std::size_t w_at(Count output, Count r, Count s, Count channel) const {
    return ((static_cast<std::size_t>(output) * kernel_h + r) * kernel_w + s) * group_channels + channel;
  }
};

Conv conv_of(const ConvProblem& problem) {
  const ConvSpec& s = problem.spec;
  const Shape out = s.convolved();
  const auto count = [](std::int64_t value) { return static_cast<Count>(value); };
  return {problem.direction,
          count(s.batch),
          count(s.input.height),
          count(s.input.width),
          count(s.input.channels),
          count(out.height),
          count(out.width),
          count(out.channels),
          count(s.window.height),
          count(s.window.width),
          count(s.window.stride.vertical),
          count(s.window.stride.horizontal),
          count(s.window.dilation.vertical),
          count(s.window.dilation.horizontal),
          count(s.window.padding.top),
          count(s.window.padding.left),
          count(s.input.channels / s.groups),
          count(out.channels / s.groups)};
}

// A random number below `size`; with `edge`, one of the first or last `depth` numbers.
__device__ Count draw(Count seed, Count size, bool edge, Count depth) {
  const Count hash = scattered(seed);
  if (!edge || 2 * depth >= size) return hash % size;
  const Count i = hash % (2 * depth);
  return i < depth ? i : size - 2 * depth + i;
}

// An element of an activation or of weights; for weights, n is the output channel, channel a channel of its group, and
// row and column are those of the kernel.
struct SamplePoint {
  Count n, row, column, channel;
};

// A quarter of the samples of activations is in a corner, half at another border and a quarter anywhere. For weights,
// the samples cycle through the taps.
__device__ SamplePoint point_of(const Conv& c, Count sample) {
  const Count seed = sample * 4;
  if (c.direction == ConvDirection::weights) {
    const Count tap = sample % (c.kernel_h * c.kernel_w);
    return {draw(seed, c.outputs, sample % 4 == 0, 1), tap / c.kernel_w, tap % c.kernel_w,
            draw(seed + 1, c.group_channels, false, 1)};
  }
  const bool forward = c.direction == ConvDirection::forward;
  return {draw(seed, c.batch, sample % 8 < 4, 1),
          draw(seed + 1, forward ? c.out_height : c.height, sample % 2 == 0, c.kernel_h * c.dilation_h / 2 + 1),
          draw(seed + 2, forward ? c.out_width : c.width, sample % 4 < 2, c.kernel_w * c.dilation_w / 2 + 1),
          draw(seed + 3, forward ? c.outputs : c.channels, sample % 16 < 8, 1)};
}

__device__ std::size_t index_of(const Conv& c, const SamplePoint& p) {
  if (c.direction == ConvDirection::forward) return c.y_at(p.n, p.row, p.column, p.channel);
  if (c.direction == ConvDirection::data) return c.x_at(p.n, p.row, p.column, p.channel);
  return c.w_at(p.n, p.row, p.column, p.channel);
}

// Calls use(index, index) with the two factors of the term, in the order of x, w and y, unless one is padding.
template <class Use>
__device__ void term_of(const Conv& c, const SamplePoint& p, Count term, Use use) {
  if (c.direction == ConvDirection::weights) {
    const Count column = term % c.out_width;
    const Count row = term / c.out_width % c.out_height;
    const Count n = term / c.out_width / c.out_height;
    // Positions above or left of the input wrap around to large numbers.
    const Count x_row = row * c.stride_h + p.row * c.dilation_h - c.pad_top;
    const Count x_column = column * c.stride_w + p.column * c.dilation_w - c.pad_left;
    if (x_row >= c.height || x_column >= c.width) return;
    const Count channel = p.n / c.group_outputs * c.group_channels + p.channel;
    use(c.x_at(n, x_row, x_column, channel), c.y_at(n, row, column, p.n));
    return;
  }
  const bool forward = c.direction == ConvDirection::forward;
  const Count depth = forward ? c.group_channels : c.group_outputs;
  const Count i = term % depth;
  const Count s = term / depth % c.kernel_w;
  const Count r = term / depth / c.kernel_w;
  if (forward) {
    const Count row = p.row * c.stride_h + r * c.dilation_h - c.pad_top;
    const Count column = p.column * c.stride_w + s * c.dilation_w - c.pad_left;
    if (row >= c.height || column >= c.width) return;
    const Count channel = p.channel / c.group_outputs * c.group_channels + i;
    use(c.x_at(p.n, row, column, channel), c.w_at(p.channel, r, s, i));
    return;
  }
  const Count below = r * c.dilation_h;
  const Count right = s * c.dilation_w;
  if (p.row + c.pad_top < below || p.column + c.pad_left < right) return;
  const Count row = p.row + c.pad_top - below;
  const Count column = p.column + c.pad_left - right;
  if (row % c.stride_h != 0 || column % c.stride_w != 0) return;
  if (row / c.stride_h >= c.out_height || column / c.stride_w >= c.out_width) return;
  const Count output = p.channel / c.group_channels * c.group_outputs + i;
  use(c.w_at(output, r, s, p.channel % c.group_channels), c.y_at(p.n, row / c.stride_h, column / c.stride_w, output));
}

template <class T>
__global__ void reference_kernel(const Conv c, const T* a, const T* b, Count terms, ConvSample* partial) {
  const SamplePoint point = point_of(c, blockIdx.x);
  ConvSample sum{0, 0};
  for (Count term = threadIdx.x; term < terms; term += blockDim.x) {
    term_of(c, point, term, [&](std::size_t i, std::size_t j) {
      const double product = static_cast<double>(get(a, i)) * static_cast<double>(get(b, j));
      sum.value += product;
      sum.squares += product * product;
    });
  }
  partial[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// One thread per sample.
__global__ void add_parts_kernel(const ConvSample* partial, Count parts, ConvSample* samples) {
  ConvSample sum{0, 0};
  for (Count i = 0; i < parts; ++i) {
    sum.value += partial[threadIdx.x * parts + i].value;
    sum.squares += partial[threadIdx.x * parts + i].squares;
  }
  samples[threadIdx.x] = sum;
}

template <class T>
__global__ void results_kernel(const Conv c, const T* result, float* values) {
  values[threadIdx.x] = get(result, index_of(c, point_of(c, threadIdx.x)));
}

unsigned parts_of(const ConvProblem& problem) { return conv_terms(problem) < kLong ? kPartsOfShort : kPartsOfLong; }

}  // namespace

std::int64_t conv_terms(const ConvProblem& problem) {
  const ConvSpec& s = problem.spec;
  const std::int64_t taps = s.window.height * s.window.width;
  if (problem.direction == ConvDirection::forward) return taps * (s.input.channels / s.groups);
  if (problem.direction == ConvDirection::data) return taps * (s.output_channels / s.groups);
  return s.batch * s.convolved().height * s.convolved().width;
}

std::size_t conv_partial_bytes(const ConvProblem& problem) {
  return std::size_t{kConvSamples} * parts_of(problem) * sizeof(ConvSample);
}

void conv_reference(cudaStream_t stream, const ConvProblem& problem, const ConvPointers& tensors, void* partial,
                    ConvSample* samples) {
  const void* a = problem.direction == ConvDirection::data ? tensors.w : tensors.x;
  const void* b = problem.direction == ConvDirection::forward ? tensors.w : tensors.y;
  const unsigned parts = parts_of(problem);
  with_element(element_of(problem.precision), [&](auto zero) {
    using T = decltype(zero);
    launch(stream, kConvSamples, parts, reference_kernel<T>, conv_of(problem), as<T>(a), as<T>(b), conv_terms(problem),
           as<ConvSample>(partial));
  });
  launch(stream, 1, kConvSamples, add_parts_kernel, as<ConvSample>(partial), parts, samples);
}

void conv_results(cudaStream_t stream, const ConvProblem& problem, const void* result, float* values) {
  with_element(element_of(problem.precision), [&](auto zero) {
    using T = decltype(zero);
    launch(stream, 1, kConvSamples, results_kernel<T>, conv_of(problem), as<T>(result), values);
  });
}

}  // namespace ddp::cuda
