// Backward; see expand.h. Of each tile of 64 rows and 64 channels of the result, a warp computes 16 rows of the input's
// gradient, and the gradients of the weights of 16 channels, for half of the input's channels.
#include "backend/cuda/batch_norm.cuh"
#include "backend/cuda/expand.cuh"
#include "backend/cuda/expand.h"

namespace ddp::cuda {
namespace {

constexpr std::uint32_t kTileRows = 64;

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

// What a warp multiplies.
struct Part {
  unsigned band;   // of 16 rows, or of 16 channels of the result
  unsigned units;  // the first of two of the input
  unsigned lane, matrix, line;

  __device__ Part()
      : band(expand_thread() / 32 % 4 * 16),
        units(expand_thread() / 128 * 2),
        lane(expand_thread() % 32),
        matrix(lane / 8),
        line(lane % 8) {}
};

// sums += the tile's gradients x the slice's weights
__device__ inline void multiply_data(const Part& p, const Unit* gradients, const Unit* weights, float (&sums)[2][4]) {
  for (unsigned step = 0; step < kSliceChannels / 16; ++step) {
    const Matrices a =
        load_matrices(gradients + (p.band + p.matrix % 2 * 8 + p.line) * kSlicePitch + 2 * step + p.matrix / 2);
    const Matrices b =
        load_transposed(weights + (step * 16 + p.matrix % 2 * 8 + p.line) * kInputPitch + p.units + p.matrix / 2);
    multiply_add(sums[0], a, b.values[0], b.values[1]);
    multiply_add(sums[1], a, b.values[2], b.values[3]);
  }
}

// sums += the transposed gradients x the inputs
__device__ inline void multiply_weights(const Part& p, const Unit* gradients, const Unit* inputs, float (&sums)[2][4]) {
  for (unsigned step = 0; step < kTileRows / 16; ++step) {
    const Matrices a = load_transposed(gradients + (step * 16 + p.matrix / 2 * 8 + p.line) * kSlicePitch +
                                       p.band / kUnitChannels + p.matrix % 2);
    const Matrices b =
        load_transposed(inputs + (step * 16 + p.matrix % 2 * 8 + p.line) * kInputPitch + p.units + p.matrix / 2);
    multiply_add(sums[0], a, b.values[0], b.values[1]);
    multiply_add(sums[1], a, b.values[2], b.values[3]);
  }
}

// Calls use(row in the band, channel of the input, the two sums from there on).
template <class Use>
__device__ inline void each_pair(const Part& p, std::uint32_t channels, const float (&sums)[2][4], Use use) {
  for (unsigned tile = 0; tile < 2; ++tile) {
    const std::uint32_t channel = (p.units + tile) * kUnitChannels + p.lane % 4 * 2;
    if (channel >= channels) continue;
    for (unsigned half = 0; half < 2; ++half) {
      use(p.lane / 4 + 8 * half, channel, sums[tile][2 * half], sums[tile][2 * half + 1]);
    }
  }
}

template <std::uint32_t kSlices>
__global__ void __launch_bounds__(kThreads, 2)
    expand_backward_kernel(const RowTiling tiling, const Tensors t, const NormalizerGradient gradient) {
  __shared__ Unit weights[kSlices * kSliceChannels * kInputPitch];
  __shared__ Unit inputs[kTileRows * kInputPitch];
  __shared__ Unit gradients[kTileRows * kSlicePitch];
  __shared__ Lines<kSlices> lines;
  const Part part;
  load_weights<kSlices * kSliceChannels>(t.weights, t.outputs, t.channels, 0, 0, weights);
  lines.fill(gradient);
  float weight_sums[kSlices][2][4] = {};
  const std::uint32_t begin = blockIdx.x * tiling.tiles_per_chunk;
  for (std::uint32_t tile = begin; tile < begin + tiling.tiles_per_chunk && tile < tiling.tiles; ++tile) {
    const std::uint32_t first = tile * kTileRows;
    float data_sums[2][4] = {};
#pragma unroll
    for (std::uint32_t slice = 0; slice < kSlices; ++slice) {
      __syncthreads();
      if (slice == 0) load_rows<kTileRows>(t.x, t.channels, first, t.rows, inputs);
      load_gradients(t, lines, first, slice, gradients);
      __syncthreads();
      multiply_data(part, gradients, weights + slice * kSliceChannels * kInputPitch, data_sums);
      multiply_weights(part, gradients, inputs, weight_sums[slice]);
    }
    each_pair(part, t.channels, data_sums, [&](std::uint32_t row, std::uint32_t channel, float one, float two) {
      if (first + part.band + row >= t.rows) return;
      const std::size_t place = static_cast<std::size_t>(first + part.band + row) * t.channels + channel;
      const float before[2] = {t.add ? get(t.dx, place) : 0.0F, t.add ? get(t.dx, place + 1) : 0.0F};
      put_some<2>(t.dx, place, {before[0] + one, before[1] + two});
    });
  }
  for (std::uint32_t slice = 0; slice < kSlices; ++slice) {
    each_pair(
        part, t.channels, weight_sums[slice], [&](std::uint32_t row, std::uint32_t channel, float one, float two) {
          const std::uint32_t output = slice * kSliceChannels + part.band + row;
          if (output >= t.outputs) return;
          put_some<2>(t.partial, (static_cast<std::size_t>(blockIdx.x) * t.outputs + output) * t.channels + channel,
                      {one, two});
        });
  }
}

// Block of kChunkColumns x kChunkLines.
__global__ void __launch_bounds__(kChunkThreads)
    chunk_sums_kernel(const float* partial, unsigned chunks, unsigned count, float* sums) {
  add_chunks(partial, chunks, count, [&](unsigned i, float sum) { sums[i] = sum; });
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
  launch(stream, chunk_blocks(count), dim3(kChunkColumns, kChunkLines), chunk_sums_kernel, partial, chunks, count,
         sums);
}

}  // namespace ddp::cuda
