// Backward; see expand.h. Of each tile of 64 rows and 64 channels of the result, a warp computes 16 rows of the input's
// gradient, and the gradients of the weights of 16 channels, for half of the input's channels.
#include "backend/cuda/joined/expand.cuh"
#include "backend/cuda/joined/expand.h"
#include "backend/cuda/joined/tile_products.cuh"
#include "backend/cuda/norm/batch_norm.cuh"

namespace ddp::cuda {
namespace {

constexpr std::uint32_t kTileRows = 64;
constexpr unsigned kUnits = kInputUnits / 2;  // of the input, for a warp

struct Tensors {
  const __nv_bfloat16* x;
  const __nv_bfloat16* y;
  const __nv_bfloat16* g;
  __nv_bfloat16* dx;
  bool add;
  const float* weights;
  float* partial;  // [chunks][outputs][channels]
  std::uint32_t rows, channels, outputs;
};

// The coefficients of all channels of the result.
template <std::uint32_t kSlices>
struct Lines {
  static constexpr std::uint32_t kCount = kSlices * kSliceChannels;
  float slope_g[kCount], slope_x[kCount], shift[kCount];

  // Called by all threads of the block, followed by a barrier before the first use.
  __device__ void fill(const NormalizerGradient& gradient) {
#pragma unroll 1
    for (std::uint32_t c = expand_thread(); c < gradient.channels; c += kThreads) {
      const GradientLine line = gradient.line(c);
      slope_g[c] = line.slope_g;
      slope_x[c] = line.slope_x;
      shift[c] = line.shift;
    }
  }
};

// The gradients of the result in a tile, from row `first` on and of the channels of a slice; zero where there are none.
template <std::uint32_t kSlices>
__device__ inline void load_gradients(const Tensors& t, const Lines<kSlices>& lines, std::uint32_t first,
                                      std::uint32_t slice, Unit* tile) {
  const std::uint32_t channel = slice * kSliceChannels + threadIdx.x * kUnitChannels;
  for (std::uint32_t line = threadIdx.y; line < kTileRows; line += blockDim.y) {
    Unit unit = zero_unit();
    if (first + line < t.rows && channel < t.outputs) {
      const std::size_t place = static_cast<std::size_t>(first + line) * t.outputs + channel;
      const Pack<__nv_bfloat16, kUnitChannels> y = get_pack<kUnitChannels>(t.y, place);
      const Pack<__nv_bfloat16, kUnitChannels> g = get_pack<kUnitChannels>(t.g, place);
      for (unsigned j = 0; j < kUnitChannels; ++j) {
        put(unit.values, j,
            lines.slope_g[channel + j] * get(g.values, j) +
                (lines.slope_x[channel + j] * get(y.values, j) + lines.shift[channel + j]));
      }
    }
    tile[line * kSlicePitch + threadIdx.x] = unit;
  }
}

template <std::uint32_t kSlices>
__global__ void __launch_bounds__(kThreads, 2)
    expand_backward_kernel(const RowTiling tiling, const Tensors t, const NormalizerGradient gradient) {
  __shared__ Unit weights[kSlices * kSliceChannels * kInputPitch];
  __shared__ Unit inputs[kTileRows * kInputPitch];
  __shared__ Unit gradients[kTileRows * kSlicePitch];
  __shared__ Lines<kSlices> lines;
  const WarpPart<kUnits> part;
  load_weights<kSlices * kSliceChannels>(t.weights, t.outputs, t.channels, 0, 0, weights);
  lines.fill(gradient);
  float weight_sums[kSlices][kUnits][4] = {};
  const std::uint32_t begin = blockIdx.x * tiling.tiles_per_chunk;
  for (std::uint32_t tile = begin; tile < begin + tiling.tiles_per_chunk && tile < tiling.tiles; ++tile) {
    const std::uint32_t first = tile * kTileRows;
    float data_sums[kUnits][4] = {};
#pragma unroll
    for (std::uint32_t slice = 0; slice < kSlices; ++slice) {
      __syncthreads();
      if (slice == 0) load_rows<kTileRows>(t.x, t.channels, first, t.rows, inputs);
      load_gradients(t, lines, first, slice, gradients);
      __syncthreads();
      add_data_products<kInputPitch>(part, gradients, weights + slice * kSliceChannels * kInputPitch, data_sums);
      add_weight_products<kInputPitch>(part, gradients, inputs, weight_sums[slice]);
    }
    part.each_pair(data_sums, [&](unsigned row, unsigned unit, unsigned of_unit, float one, float two) {
      const std::uint32_t channel = unit * kUnitChannels + of_unit;
      if (channel >= t.channels || first + part.band + row >= t.rows) return;
      const std::size_t place = static_cast<std::size_t>(first + part.band + row) * t.channels + channel;
      const float before[2] = {t.add ? get(t.dx, place) : 0.0F, t.add ? get(t.dx, place + 1) : 0.0F};
      put_some<2>(t.dx, place, {before[0] + one, before[1] + two});
    });
  }
  for (std::uint32_t slice = 0; slice < kSlices; ++slice) {
    part.each_pair(weight_sums[slice], [&](unsigned row, unsigned unit, unsigned of_unit, float one, float two) {
      const std::uint32_t output = slice * kSliceChannels + part.band + row;
      const std::uint32_t channel = unit * kUnitChannels + of_unit;
      if (output >= t.outputs || channel >= t.channels) return;
      put_some<2>(t.partial, (static_cast<std::size_t>(blockIdx.x) * t.outputs + output) * t.channels + channel,
                  {one, two});
    });
  }
}

// A block adds some sums of four; each line of threads takes every kLines-th chunk.
constexpr unsigned kSumColumns = 32;
constexpr unsigned kSumLines = kThreads / kSumColumns;
using FourSums = Pack<float, 4>;

__global__ void __launch_bounds__(kThreads)
    chunk_sums_kernel(const float* partial, unsigned chunks, unsigned count, float* sums) {
  __shared__ FourSums tree[1][kThreads];
  const unsigned i = (blockIdx.x * kSumColumns + threadIdx.x) * 4;
  const auto added_four = [](const FourSums& a, const FourSums& b) {
    FourSums sum;
    for (unsigned j = 0; j < 4; ++j) sum.values[j] = a.values[j] + b.values[j];
    return sum;
  };
  FourSums sum{};
#pragma unroll 4
  for (unsigned chunk = threadIdx.y; i < count && chunk < chunks; chunk += kSumLines) {
    sum = added_four(sum, get_pack<4>(partial, static_cast<std::size_t>(chunk) * count + i));
  }
  tree[0][thread_of_block()] = sum;
  merge_lines(tree, added_four);
  if (threadIdx.y == 0 && i < count) *reinterpret_cast<FourSums*>(sums + i) = tree[0][threadIdx.x];
}

std::uint32_t rows_of_samples(const ConvSpec& spec, std::int64_t samples) {
  return rows_of(samples, spec.input, Layout::nhwc).rows;
}

}  // namespace

std::int64_t expand_backward_sums(const ConvSpec& spec) {
  return std::int64_t{RowTiling(rows_of_samples(spec, spec.batch), kTileRows).chunks} * spec.weights();
}

void expand_backward(cudaStream_t stream, const ConvSpec& spec, const ExpandBackward& a) {
  const std::uint32_t rows = rows_of_samples(spec, a.samples);
  const auto outputs = static_cast<std::uint32_t>(spec.output_channels);
  const RowTiling tiling(rows, kTileRows);
  const Tensors tensors{as<__nv_bfloat16>(a.x),
                        as<__nv_bfloat16>(a.y),
                        as<__nv_bfloat16>(a.g),
                        as<__nv_bfloat16>(a.dx),
                        a.add,
                        a.weights,
                        a.partial_sums,
                        rows,
                        static_cast<std::uint32_t>(spec.input.channels),
                        outputs};
  const NormalizerGradient gradient{
      a.means, a.norm_weight, a.norm_weight_gradient, a.norm_bias_gradient, outputs, 1.0F / static_cast<float>(rows)};
  static_assert(kMostSlices == 3);
  const auto kernel = outputs <= kSliceChannels       ? expand_backward_kernel<1>
                      : outputs <= 2 * kSliceChannels ? expand_backward_kernel<2>
                                                      : expand_backward_kernel<3>;
  launch(stream, dim3(tiling.chunks), dim3(kSliceUnits, kThreads / kSliceUnits), kernel, tiling, tensors, gradient);
  add_up_chunks(stream, a.partial_sums, tiling.chunks, static_cast<unsigned>(spec.weights()), a.weights_gradient);
}

void add_up_chunks(cudaStream_t stream, const float* partial, unsigned chunks, unsigned count, float* sums) {
  constexpr unsigned kSumsOfBlock = 4 * kSumColumns;
  launch(stream, (count + kSumsOfBlock - 1) / kSumsOfBlock, dim3(kSumColumns, kSumLines), chunk_sums_kernel, partial,
         chunks, count, sums);
}

}  // namespace ddp::cuda
