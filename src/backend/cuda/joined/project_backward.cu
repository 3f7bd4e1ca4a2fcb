// Backward; see project.h. Of each tile of 64 rows and 64 channels of the input, a warp computes the gradients of 16 rows and
// 32 channels, and the gradients of the weights of 8 channels.
#include "backend/cuda/joined/expand.h"
#include "backend/cuda/joined/project.cuh"
#include "backend/cuda/joined/slice_tiling.cuh"

namespace ddp::cuda {
namespace {

constexpr std::uint32_t kTileRows = 64;

__device__ std::uint32_t tickets[kMostTickets];  // one for each slice of channels

struct Tensors {
  const __nv_bfloat16* x;
  const __nv_bfloat16* dy;
  __nv_bfloat16* g;
  const float* weights;
  float* partial;          // [chunks][2][channels]: the sums of g and of g (x - mean)
  float* partial_weights;  // [chunks][outputs][channels]
  std::uint32_t outputs;
};

struct NormGradients {
  const float* means;
  float* weight;
  float* bias;
};

// The tiles of a block in shared memory, which its sums take over in the end.
template <std::uint32_t kPairs>
struct Tiles {
  static constexpr std::uint32_t kDyPitch = 2 * kPairs + 1;
  static constexpr std::uint32_t kFactors = kPairs * 2 * kUnitChannels * kSlicePitch;
  static constexpr std::uint32_t kDy = kTileRows * kDyPitch;
  static constexpr std::uint32_t kTile = kTileRows * kSlicePitch;
  using Tree = Sums[kUnitChannels][kThreads];
  using Chunks = Sums[kTogether<kUnitChannels>][kThreads];
  static constexpr std::uint32_t kUnits = kFactors + kDy + 2 * kTile;
  static constexpr std::uint32_t kSumUnits = (sizeof(Tree) + sizeof(Chunks)) / sizeof(Unit);

  Unit memory[kUnits > kSumUnits ? kUnits : kSumUnits];

  __device__ Unit* factors() { return memory; }
  __device__ Unit* dy() { return memory + kFactors; }
  __device__ Unit* activations() { return memory + kFactors + kDy; }
  __device__ Unit* gradients() { return memory + kFactors + kDy + kTile; }
  __device__ Tree& tree() { return *reinterpret_cast<Tree*>(memory); }
  __device__ Chunks& sums_of_chunks() { return *reinterpret_cast<Chunks*>(memory + sizeof(Tree) / sizeof(Unit)); }
};

// gradients = dy x the slice's weights, a warp's 16 rows and 32 channels.
template <std::uint32_t kPairs>
__device__ inline void multiply_data(const Unit* dy, const Unit* factors, Unit* gradients) {
  const unsigned lane = expand_thread() % 32;
  const unsigned matrix = lane / 8;
  const unsigned line = lane % 8;
  const unsigned band = expand_thread() / 32 % 4 * 16;
  const unsigned units = expand_thread() / 128 * (kSliceUnits / 2);
  float sums[kSliceUnits / 2][4] = {};
#pragma unroll
  for (unsigned step = 0; step < kPairs; ++step) {
    const Matrices a =
        load_matrices(dy + (band + matrix % 2 * 8 + line) * Tiles<kPairs>::kDyPitch + 2 * step + matrix / 2);
#pragma unroll
    for (unsigned pair = 0; pair < kSliceUnits / 4; ++pair) {
      const Matrices b =
          load_transposed(factors + (step * 16 + matrix % 2 * 8 + line) * kSlicePitch + units + 2 * pair + matrix / 2);
      multiply_add(sums[2 * pair], a, b.values[0], b.values[1]);
      multiply_add(sums[2 * pair + 1], a, b.values[2], b.values[3]);
    }
  }
  for (unsigned tile = 0; tile < kSliceUnits / 2; ++tile) {
    for (unsigned half = 0; half < 2; ++half) {
      Unit& unit = gradients[(band + 8 * half + lane / 4) * kSlicePitch + units + tile];
      put_some<2>(unit.values, lane % 4 * 2, {sums[tile][2 * half], sums[tile][2 * half + 1]});
    }
  }
}

// sums += the transposed dy x the activations, of a warp's 8 channels.
template <std::uint32_t kPairs>
__device__ inline void multiply_weights(const Unit* dy, const Unit* activations, float (&sums)[kPairs][4]) {
  const unsigned matrix = expand_thread() % 32 / 8;
  const unsigned line = expand_thread() % 8;
  const unsigned warp = expand_thread() / 32;
#pragma unroll
  for (unsigned rows = 0; rows < kTileRows; rows += 32) {
    const Matrices b = load_transposed(activations + (rows + matrix * 8 + line) * kSlicePitch + warp);
#pragma unroll
    for (unsigned step = 0; step < 2; ++step) {
#pragma unroll
      for (unsigned pair = 0; pair < kPairs; ++pair) {
        const Matrices a = load_transposed(dy + (rows + step * 16 + matrix / 2 * 8 + line) * Tiles<kPairs>::kDyPitch +
                                           2 * pair + matrix % 2);
        multiply_add(sums[pair], a, b.values[2 * step], b.values[2 * step + 1]);
      }
    }
  }
}

// The coefficients of a block's channels, in shared memory to save registers.
struct Coefficients {
  float scale[kSliceChannels];
  float shift[kSliceChannels];
  float mean[kSliceChannels];

  // Called by all threads of the block, followed by a barrier before the first use.
  __device__ void fill(const Normalizer& normalizer, std::uint32_t slice) {
    const std::uint32_t i = expand_thread();
    const std::uint32_t channel = slice * kSliceChannels + i;
    if (i >= kSliceChannels) return;
    const bool exists = channel < normalizer.channels;
    const Line line = exists ? normalizer.line(channel) : Line{0.0F, 0.0F};
    scale[i] = line.scale;
    shift[i] = line.shift;
    mean[i] = exists ? normalizer.means[channel] : 0.0F;
  }
  // Of the calling thread's channel j.
  __device__ float normalised(float x, unsigned j) const {
    const unsigned i = threadIdx.x * kUnitChannels + j;
    return x * scale[i] + shift[i];
  }
};

template <std::uint32_t kPairs>
__device__ inline void put_weights(const Tensors& t, const Rows& rows, const SliceTiling<kTileRows>& tiling,
                                   const float (&sums)[kPairs][4]) {
  const unsigned lane = expand_thread() % 32;
  const std::uint32_t channel = tiling.group() * kSliceChannels + expand_thread() / 32 * kUnitChannels + lane % 4 * 2;
  if (channel >= rows.channels) return;
  for (unsigned pair = 0; pair < kPairs; ++pair) {
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t output = pair * 2 * kUnitChannels + 8 * half + lane / 4;
      if (output >= t.outputs) continue;
      put_some<2>(t.partial_weights,
                  (static_cast<std::size_t>(tiling.chunk()) * t.outputs + output) * rows.channels + channel,
                  {sums[pair][2 * half], sums[pair][2 * half + 1]});
    }
  }
}

template <std::uint32_t kPairs>
__global__ void __launch_bounds__(kThreads, 2)
    project_backward_kernel(const Rows rows, const SliceTiling<kTileRows> tiling, const Tensors t,
                            const Normalizer normalizer, const NormGradients to) {
  constexpr unsigned kRows = kTileRows * kSliceUnits / kThreads;  // of a tile, for each thread
  __shared__ Tiles<kPairs> tiles;
  __shared__ Coefficients coefficients;
  const std::uint32_t channel = tiling.channel(kUnitChannels);
  const bool exists = channel < rows.channels;
  coefficients.fill(normalizer, tiling.group());
  load_slice<kPairs>(t.weights, t.outputs, rows.channels, tiling.group(), tiles.factors());
  const std::uint32_t begin = tiling.begin_of(tiling.chunk());
  const std::uint32_t end = begin + tiling.rows_in(rows, tiling.chunk());
  float weight_sums[kPairs][4] = {};
  Sums sums[kUnitChannels] = {};
  for (std::uint32_t first = begin; first < end; first += kTileRows) {
    Pack<__nv_bfloat16, kUnitChannels> x[kRows];
    __syncthreads();
    load_rows<kTileRows, 2 * kPairs>(t.dy, t.outputs, first, end, tiles.dy());
    for (unsigned i = 0; i < kRows; ++i) {
      const std::uint32_t row = threadIdx.y + i * blockDim.y;
      const bool inside = exists && first + row < end;
      const std::size_t place = static_cast<std::size_t>(first + row) * rows.channels + channel;
      x[i] = get_pack_if<kUnitChannels>(inside, t.x, place);
      Unit& unit = tiles.activations()[row * kSlicePitch + threadIdx.x];
      for (unsigned j = 0; j < kUnitChannels; ++j) {
        put(unit.values, j, normalizer.bounds.clamp(coefficients.normalised(get(x[i].values, j), j)));
      }
    }
    __syncthreads();
    multiply_data<kPairs>(tiles.dy(), tiles.factors(), tiles.gradients());
    multiply_weights<kPairs>(tiles.dy(), tiles.activations(), weight_sums);
    __syncthreads();
    for (unsigned i = 0; i < kRows; ++i) {
      const std::uint32_t row = threadIdx.y + i * blockDim.y;
      if (!exists || first + row >= end) continue;
      const Unit unit = tiles.gradients()[row * kSlicePitch + threadIdx.x];
      float g[kUnitChannels];
      for (unsigned j = 0; j < kUnitChannels; ++j) {
        const float value = get(x[i].values, j);
        g[j] = normalizer.bounds.pass(coefficients.normalised(value, j)) ? get(unit.values, j) : 0.0F;
        sums[j].first += g[j];
        sums[j].second += g[j] * (value - coefficients.mean[threadIdx.x * kUnitChannels + j]);
      }
      put_some(t.g, static_cast<std::size_t>(first + row) * rows.channels + channel, g);
    }
  }
  put_weights<kPairs>(t, rows, tiling, weight_sums);
  __syncthreads();
  put_chunk_sums(rows, tiling, tiles.tree(), sums, channel, t.partial);
  if (!is_last_block(tickets + tiling.group(), tiling.chunks())) return;
  each_channel<kUnitChannels>(rows, tiling, t.partial, tiles.sums_of_chunks(), [&](std::uint32_t of, const Sums& all) {
    to.bias[of] = all.first;
    to.weight[of] = all.second * to.means[rows.channels + of];
  });
}

}  // namespace

std::int64_t project_backward_sums(const ConvSpec& spec) {
  const SliceTiling<kTileRows> tiling(rows_of(spec.batch, spec.input, Layout::nhwc));
  return std::int64_t{tiling.chunks()} * (2 * spec.input.channels + spec.weights());
}

void project_backward(cudaStream_t stream, const ConvSpec& spec, const ProjectBackward& a) {
  const Rows rows = rows_of(a.samples, spec.input, Layout::nhwc);
  const SliceTiling<kTileRows> tiling(rows);
  const Tensors tensors{as<__nv_bfloat16>(a.x),
                        as<__nv_bfloat16>(a.dy),
                        as<__nv_bfloat16>(a.g),
                        a.weights,
                        a.partial_sums,
                        a.partial_sums + std::size_t{2} * tiling.chunks() * rows.channels,
                        static_cast<std::uint32_t>(spec.output_channels)};
  const NormGradients gradients{a.of_norm.means, a.norm_weight_gradient, a.norm_bias_gradient};
  with_pairs(spec.output_channels, [&](auto pairs) {
    launch(stream, dim3(tiling.blocks()), dim3(kSliceUnits, kThreads / kSliceUnits),
           project_backward_kernel<decltype(pairs)::value>, rows, tiling, tensors, normalizer_of(*a.norm, a.of_norm),
           gradients);
  });
  add_up_chunks(stream, tensors.partial_weights, tiling.chunks(), static_cast<unsigned>(spec.weights()),
                a.weights_gradient);
}

}  // namespace ddp::cuda
