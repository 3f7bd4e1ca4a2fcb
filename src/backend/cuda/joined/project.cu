// Forward; see project.h. A warp computes 16 rows of a tile.
#include "backend/cuda/joined/project.cuh"
#include "backend/cuda/joined/tile_products.cuh"

namespace ddp::cuda {
namespace {

constexpr std::uint32_t kTileRows = 128;

struct Matrix {
  const __nv_bfloat16* x;
  const float* weights;
  __nv_bfloat16* y;
  std::uint32_t rows, channels, outputs;
};

// The normalised rows of a tile, from `first` on and of the channels of a slice; zero where there are none.
__device__ inline void load_normalised(const Matrix& m, const Line* lines, const Bounds& bounds, std::uint32_t first,
                                       std::uint32_t slice, Unit* tile) {
  const std::uint32_t channel = slice * kSliceChannels + threadIdx.x * kUnitChannels;
  for (std::uint32_t row = threadIdx.y; row < kTileRows; row += blockDim.y) {
    Unit unit = zero_unit();
    if (first + row < m.rows && channel < m.channels) {
      float values[kUnitChannels];
      get_some(m.x, static_cast<std::size_t>(first + row) * m.channels + channel, values);
      for (unsigned j = 0; j < kUnitChannels; ++j) {
        const Line line = lines[channel + j];
        put(unit.values, j, bounds.clamp(values[j] * line.scale + line.shift));
      }
    }
    tile[row * kSlicePitch + threadIdx.x] = unit;
  }
}

// kNormalises: otherwise x is multiplied as it is.
template <std::uint32_t kPairs, bool kNormalises>
__global__ void __launch_bounds__(kThreads, 2)
    project_kernel(const RowTiling tiling, const Matrix m, const Normalizer normalizer) {
  __shared__ Unit inputs[kTileRows * kSlicePitch];
  __shared__ Unit factors[kPairs * 2 * kUnitChannels * kSlicePitch];
  __shared__ Line lines[kMostInputs];
#pragma unroll 1
  for (std::uint32_t c = expand_thread(); c < m.channels; c += kThreads) {
    lines[c] = kNormalises ? normalizer.line(c) : Line{1.0F, 0.0F};
  }
  const unsigned warp_row = expand_thread() / 32 * 16;
  const unsigned lane = expand_thread() % 32;
  const std::uint32_t begin = blockIdx.x * tiling.tiles_per_chunk;
  for (std::uint32_t tile = begin; tile < begin + tiling.tiles_per_chunk && tile < tiling.tiles; ++tile) {
    const std::uint32_t first = tile * kTileRows;
    float sums[kPairs][2][4] = {};
    for (std::uint32_t slice = 0; slice * kSliceChannels < m.channels; ++slice) {
      __syncthreads();
      load_normalised(m, lines, normalizer.bounds, first, slice, inputs);
      load_slice<kPairs>(m.weights, m.outputs, m.channels, slice, factors);
      __syncthreads();
      add_row_products<kPairs>(inputs + warp_row * kSlicePitch, factors, sums);
    }
    for (unsigned pair = 0; pair < kPairs; ++pair) {
      for (unsigned half = 0; half < 4; ++half) {
        const std::uint32_t row = first + warp_row + half % 2 * 8 + lane / 4;
        const std::uint32_t output = (2 * pair + half / 2) * kUnitChannels + lane % 4 * 2;
        if (row >= m.rows || output >= m.outputs) continue;
        const float(&of_tile)[4] = sums[pair][half / 2];
        put_some<2>(m.y, static_cast<std::size_t>(row) * m.outputs + output,
                    {of_tile[half % 2 * 2], of_tile[half % 2 * 2 + 1]});
      }
    }
  }
}

}  // namespace

bool project_takes(Element element, const ConvSpec& s) {
  return multiplies_units(element, s) && s.input.channels <= kMostInputs &&
         s.output_channels <= kMostPairs * 2 * kUnitChannels;
}

void project(cudaStream_t stream, const ConvSpec& spec, const ProjectForward& a) {
  const Rows rows = rows_of(a.samples, spec.input, Layout::nhwc);
  const RowTiling tiling(rows.rows, kTileRows);
  const Matrix matrix{as<__nv_bfloat16>(a.x), a.weights,
                      as<__nv_bfloat16>(a.y), rows.rows,
                      rows.channels,          static_cast<std::uint32_t>(spec.output_channels)};
  const bool normalises = a.norm != nullptr;
  Normalizer normalizer{};
  normalizer.bounds = bounds_of(Activation::none);
  if (normalises) normalizer = normalizer_of(*a.norm, a.of_norm);
  with_pairs(spec.output_channels, [&](auto pairs) {
    constexpr std::uint32_t kPairs = decltype(pairs)::value;
    launch(stream, dim3(tiling.chunks), dim3(kSliceUnits, kThreads / kSliceUnits),
           normalises ? project_kernel<kPairs, true> : project_kernel<kPairs, false>, tiling, matrix, normalizer);
  });
}

}  // namespace ddp::cuda
