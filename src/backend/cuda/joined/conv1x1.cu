// Forward; see conv1x1.h. A warp computes 16 rows of a tile.
#include "backend/cuda/joined/conv1x1.cuh"
#include "backend/cuda/joined/tile_products.cuh"

namespace ddp::cuda {
namespace {

constexpr std::uint32_t kTileRows = 128;
constexpr unsigned kPacks = kTileRows * kSliceUnits / kThreads;  // of a tile, for each thread

using Slices = SliceTiling<kTileRows>;

__device__ std::uint32_t tickets[kMostTickets];  // one for each slice of channels

struct Matrix {
  const __nv_bfloat16* x;
  const float* weights;
  __nv_bfloat16* y;
  std::uint32_t channels;
};

// kNormalises: otherwise x is multiplied as it is. kTraining: takes the statistics of y.
template <bool kNormalises, bool kTraining, class InputRows>
__global__ void __launch_bounds__(kThreads, 2)
    conv1x1_kernel(const PreviousKernel previous, const Rows rows, const InputRows input_rows, const Slices tiling,
                   const Matrix m, const Normalizer normalizer, const Statistics statistics) {
  previous.wait();
  __shared__ Unit tile[kTileRows * kSlicePitch];  // of the input, then of the result
  __shared__ Unit factors[kSliceChannels * kSlicePitch];
  __shared__ Line lines[kNormalises ? kMostNormalised : 1];
  if constexpr (kNormalises) {
#pragma unroll 1
    for (std::uint32_t c = tile_thread(); c < m.channels; c += kThreads) lines[c] = normalizer.line(c);
  }
  const std::uint32_t slices = m.channels / kSliceChannels;
  const std::uint32_t channel = threadIdx.x * kUnitChannels;
  const std::uint32_t begin = tiling.begin_of(tiling.chunk());
  const std::uint32_t end = begin + tiling.rows_in(rows, tiling.chunk());
  const unsigned lane = tile_thread() % 32;
  Unit* const own = tile + tile_thread() / 32 * 16 * kSlicePitch;
  if (slices == 1) load_factors(m.weights, m.channels, tiling.group() * kSliceChannels, 0, factors);
  RowPack packs[kPacks];
  load_packs(m.x, m.channels, channel, begin, end, packs, input_rows);
  float shift[kUnitChannels] = {};
  Sums sums[kUnitChannels] = {};
  for (std::uint32_t first = begin; first < end; first += kTileRows) {
    float products[kSliceUnits / 2][2][4] = {};
    for (std::uint32_t slice = 0; slice < slices; ++slice) {
      __syncthreads();
#pragma unroll
      for (unsigned i = 0; i < kPacks; ++i) {
        if constexpr (kNormalises) {
          packs[i] = each_value(packs[i], [&](float value, unsigned j) {
            const Line line = lines[slice * kSliceChannels + channel + j];
            return normalizer.bounds.clamp(value * line.scale + line.shift);
          });
        }
        put_pack(tile, threadIdx.y + i * blockDim.y, packs[i]);
      }
      if (slices > 1) {
        load_factors(m.weights, m.channels, tiling.group() * kSliceChannels, slice * kSliceChannels, factors);
      }
      __syncthreads();
      // Those of the next turn, while this one is multiplied.
      const bool last = slice + 1 == slices;
      load_packs(m.x, m.channels, channel + (last ? 0 : (slice + 1) * kSliceChannels), last ? first + kTileRows : first,
                 end, packs, input_rows);
      add_row_products<kSliceUnits / 2>(own, factors, products);
    }
    __syncthreads();
    for (unsigned pair = 0; pair < kSliceUnits / 2; ++pair) {
      for (unsigned quarter = 0; quarter < 4; ++quarter) {
        const float(&of)[4] = products[pair][quarter / 2];
        Unit& unit = own[(quarter % 2 * 8 + lane / 4) * kSlicePitch + 2 * pair + quarter / 2];
        put_some<2>(unit.values, lane % 4 * 2, {of[quarter % 2 * 2], of[quarter % 2 * 2 + 1]});
      }
    }
    __syncthreads();
    // The chunk's first row is the shift, as in moments_kernel.
    if (kTraining && first == begin) get_some(tile[threadIdx.x].values, 0, shift);
    for (std::uint32_t row = threadIdx.y; row < kTileRows && first + row < end; row += blockDim.y) {
      const RowPack unit = get_pack_of(tile, row);
      const std::size_t place = static_cast<std::size_t>(first + row) * rows.channels + tiling.channel(kUnitChannels);
      *reinterpret_cast<RowPack*>(m.y + place) = unit;
      if constexpr (kTraining) {
        for (unsigned j = 0; j < kUnitChannels; ++j) {
          const float apart = (j % 2 == 0 ? unit.lower(j) : unit.upper(j)) - shift[j];
          sums[j] = added(sums[j], {apart, apart * apart});
        }
      }
    }
  }
  if constexpr (kTraining) {
    __shared__ MomentSums chunks[kTogether<kUnitChannels>][kThreads];
    __syncthreads();
    using Tree = Sums[kUnitChannels][kThreads];
    static_assert(sizeof(tile) >= sizeof(Tree));
    put_moments(rows, tiling, statistics, shift, sums, *reinterpret_cast<Tree*>(tile), chunks, tickets);
  }
}

Rows rows_of_result(const ConvSpec& spec, std::int64_t samples) {
  return rows_of(samples, spec.convolved(), Layout::nhwc);
}

}  // namespace

std::int64_t conv1x1_forward_sums(const ConvSpec& spec) {
  return std::int64_t{Slices(rows_of_result(spec, spec.batch)).chunks()} * 2 * spec.output_channels;
}

void conv1x1(cudaStream_t stream, const ConvSpec& spec, const Conv1x1Arguments& a) {
  const Rows rows = rows_of_result(spec, a.samples);
  const Slices tiling(rows);
  const Matrix matrix{as<__nv_bfloat16>(a.x), a.weights, as<__nv_bfloat16>(a.y),
                      static_cast<std::uint32_t>(spec.input.channels)};
  const Normalizer normalizer = a.before == nullptr ? Normalizer{} : normalizer_in_front(*a.before, a.of_before);
  Statistics statistics{};
  if (a.after != nullptr) {
    statistics = {a.partial_sums, a.of_after.means, a.of_after.statistics, nullptr,
                  rows.channels,  a.after->epsilon, a.after->momentum};
  }
  const auto run = [&](auto normalises, auto input_rows) {
    constexpr bool kNormalises = decltype(normalises)::value;
    using InputRows = decltype(input_rows);
    launch(stream, dim3(tiling.blocks()), dim3(kSliceUnits, kThreads / kSliceUnits),
           a.after == nullptr ? conv1x1_kernel<kNormalises, false, InputRows>
                              : conv1x1_kernel<kNormalises, true, InputRows>,
           rows, input_rows, tiling, matrix, normalizer, statistics);
  };
  if (a.before != nullptr) return run(std::true_type{}, EveryRow{});
  with_input_rows(spec, [&](auto input_rows) { run(std::false_type{}, input_rows); });
}

}  // namespace ddp::cuda
