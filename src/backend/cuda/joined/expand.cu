// Forward; see expand.h. A warp computes 16 rows of a tile.
#include "backend/cuda/joined/expand.cuh"
#include "backend/cuda/joined/expand.h"
#include "backend/cuda/norm/batch_norm.cuh"

namespace ddp::cuda {
namespace {

constexpr std::uint32_t kTileRows = 128;

__device__ std::uint32_t tickets[kMostTickets];  // one for each slice of channels

// The products of a warp's 16 rows with the weights of a slice, as bf16 to `results`.
__device__ inline void multiply(const Unit* inputs, const Unit* weights, Unit* results) {
  const unsigned lane = expand_thread() % 32;
  const unsigned matrix = lane / 8;
  const unsigned line = lane % 8;
  Matrices a[kInputUnits / 2];
  for (unsigned step = 0; step < kInputUnits / 2; ++step) {
    a[step] = load_matrices(inputs + (matrix % 2 * 8 + line) * kInputPitch + 2 * step + matrix / 2);
  }
  for (unsigned pair = 0; pair < kSliceUnits; pair += 2) {
    float sums[2][4] = {};
    for (unsigned step = 0; step < kInputUnits / 2; ++step) {
      const Matrices b =
          load_matrices(weights + ((pair + matrix / 2) * 8 + line) * kInputPitch + 2 * step + matrix % 2);
      multiply_add(sums[0], a[step], b.values[0], b.values[1]);
      multiply_add(sums[1], a[step], b.values[2], b.values[3]);
    }
    for (unsigned tile = 0; tile < 2; ++tile) {
      for (unsigned half = 0; half < 2; ++half) {
        Unit& unit = results[(8 * half + lane / 4) * kSlicePitch + pair + tile];
        put_some<2>(unit.values, lane % 4 * 2, {sums[tile][2 * half], sums[tile][2 * half + 1]});
      }
    }
  }
}

template <bool kTraining>
__global__ void __launch_bounds__(kThreads, 3)
    expand_kernel(const Rows rows, const Tiling tiling, const __nv_bfloat16* x, std::uint32_t channels,
                  const float* weights, __nv_bfloat16* y, const Statistics statistics) {
  __shared__ Unit inputs[kTileRows * kInputPitch];
  __shared__ Unit factors[kSliceChannels * kInputPitch];
  __shared__ Unit results[kTileRows * kSlicePitch];
  const std::uint32_t channel = tiling.channel(kUnitChannels);
  const bool inside = channel < rows.channels;
  const std::uint32_t begin = tiling.begin_of(tiling.chunk());
  const std::uint32_t end = begin + tiling.rows_in(rows, tiling.chunk());
  const unsigned warp_row = expand_thread() / 32 * 16;
  load_weights<kSliceChannels>(weights, rows.channels, channels, tiling.group() * kSliceChannels, 0, factors);
  float shift[kUnitChannels] = {};
  Sums sums[kUnitChannels] = {};
  for (std::uint32_t first = begin; first < end; first += kTileRows) {
    load_rows<kTileRows>(x, channels, first, end, inputs);
    __syncthreads();
    multiply(inputs + warp_row * kInputPitch, factors, results + warp_row * kSlicePitch);
    __syncthreads();
    if (!inside) continue;
    // The chunk's first row is the shift, as in moments_kernel.
    if (kTraining && first == begin) get_some(results[threadIdx.x].values, 0, shift);
    for (std::uint32_t row = threadIdx.y; row < kTileRows && first + row < end; row += blockDim.y) {
      const Unit unit = results[row * kSlicePitch + threadIdx.x];
      *reinterpret_cast<Unit*>(y + static_cast<std::size_t>(first + row) * rows.channels + channel) = unit;
      if constexpr (kTraining) {
        for (unsigned j = 0; j < kUnitChannels; ++j) {
          const float apart = get(unit.values, j) - shift[j];
          sums[j].first += apart;
          sums[j].second += apart * apart;
        }
      }
    }
  }
  if (!kTraining) return;
  __shared__ MomentSums chunks[kTogether<kUnitChannels>][kThreads];
  __syncthreads();
  static_assert(sizeof(results) >= sizeof(Sums[kUnitChannels][kThreads]));
  put_moments(rows, tiling, statistics, shift, sums, *reinterpret_cast<Sums(*)[kUnitChannels][kThreads]>(results),
              chunks, tickets);
}

Tiling tiling_of(const Rows& rows) { return {rows, kUnitChannels}; }

Rows rows_of_result(const ConvSpec& spec, std::int64_t samples) {
  return rows_of(samples, spec.convolved(), Layout::nhwc);
}

}  // namespace

bool expand_takes(Element element, const ConvSpec& s) {
  constexpr std::int64_t kUnit = kUnitChannels;
  return multiplies_units(element, s) && s.input.channels <= kInputUnits * kUnit &&
         // A slice has all of its columns.
         s.output_channels > kSliceChannels / 2 && s.output_channels <= kMostSlices * kSliceChannels;
}

std::int64_t expand_forward_sums(const ConvSpec& spec) {
  return std::int64_t{tiling_of(rows_of_result(spec, spec.batch)).chunks()} * 2 * spec.output_channels;
}

void expand(cudaStream_t stream, const ConvSpec& spec, const ExpandForward& a) {
  const Rows rows = rows_of_result(spec, a.samples);
  const Tiling tiling = tiling_of(rows);
  const bool training = a.norm != nullptr;
  Statistics statistics{};
  if (training) {
    statistics = {a.partial_sums, a.means, a.statistics, nullptr, rows.channels, a.norm->epsilon, a.norm->momentum};
  }
  launch(stream, tiling.blocks(), tiling.threads(), training ? expand_kernel<true> : expand_kernel<false>, rows, tiling,
         as<__nv_bfloat16>(a.x), static_cast<std::uint32_t>(spec.input.channels), a.weights, as<__nv_bfloat16>(a.y),
         statistics);
}

}  // namespace ddp::cuda
