// Backward; see conv1x1.h. Of each tile of 64 rows, a warp computes the input's gradients of 16 rows, and the gradients of the
// weights of 16 of each 64 channels of the result, for a part of the block's channels of the input.
#include "backend/cuda/joined/conv1x1.cuh"
#include "backend/cuda/joined/tile_products.cuh"

namespace ddp::cuda {
namespace {

constexpr std::uint32_t kTileRows = 64;
constexpr std::uint32_t kMostSlicesOfResult = 8;

using Slices = SliceTiling<kTileRows>;

__device__ std::uint32_t tickets[kMostTickets];  // one for each slice of channels of the input

// The sums of all weights' gradients take kSlices times as many registers as those of 64 channels.
template <std::uint32_t kSlices>
inline constexpr unsigned kBlockThreads = kSlices <= 2 ? 256 : 512;
// Whether registers are left for the next tile's input.
template <std::uint32_t kSlices>
inline constexpr bool kPrefetchesInputs = kSlices <= 4;

struct Tensors {
  const __nv_bfloat16* x;
  const __nv_bfloat16* y;
  const __nv_bfloat16* g;
  __nv_bfloat16* dx;
  bool add;
  const float* weights;
  float* partial;          // [chunks][2][channels]: the sums of what is written to dx, and of it times (x - mean)
  float* partial_weights;  // [chunks][outputs][channels]
};

// The normalisation behind: its coefficients for all channels of the result.
template <std::uint32_t kSlices>
struct Behind {
  static constexpr std::uint32_t kCount = kSlices * kSliceChannels;
  float slope_g[kCount], slope_x[kCount], shift_g[kCount];
  float scale[kCount], shift[kCount];

  __device__ void fill(const Normalizer& normalizer, const NormalizerGradient& gradient) {
#pragma unroll 1
    for (std::uint32_t c = tile_thread(); c < kCount; c += blockDim.x * blockDim.y) {
      const GradientLine of_gradient = gradient.line(c);
      slope_g[c] = of_gradient.slope_g;
      slope_x[c] = of_gradient.slope_x;
      shift_g[c] = of_gradient.shift;
      const Line line = normalizer.line(c);
      scale[c] = line.scale;
      shift[c] = line.shift;
    }
  }
};

// The normalisation in front: its coefficients for the block's channels of the input.
struct InFront {
  float scale[kSliceChannels], shift[kSliceChannels], mean[kSliceChannels];

  __device__ void fill(const Normalizer& normalizer, std::uint32_t slice) {
    const std::uint32_t i = tile_thread();
    if (i >= kSliceChannels) return;
    const Line line = normalizer.line(slice * kSliceChannels + i);
    scale[i] = line.scale;
    shift[i] = line.shift;
    mean[i] = normalizer.means[slice * kSliceChannels + i];
  }
};

template <std::uint32_t kSlices>
struct Tiles {
  Unit weights[kSlices * kSliceChannels * kSlicePitch];
  Unit inputs[kTileRows * kSlicePitch];
  Unit gradients[kTileRows * kSlicePitch];  // of the result, 64 channels at a time
  Unit results[kTileRows * kSlicePitch];    // the input's gradient
  RowPack read[kTileRows * kSliceUnits];  // the input before a normalisation in front, for the thread that has read it
};
template <std::uint32_t kSlices>
struct Shared {
  using Sum = Sums[kTogether<kUnitChannels>][kBlockThreads<kSlices>];

  // The sums of chunks are added up when the tiles are not needed any more.
  union {
    Tiles<kSlices> tiles;
    Sum chunks;
  };
  Sums tree[kUnitChannels][kBlockThreads<kSlices>];  // of each thread, in place of registers
  Behind<kSlices> behind;
  InFront in_front;
};

template <std::uint32_t kSlices>
__device__ inline float gradient_of(const Behind<kSlices>& behind, const Bounds& bounds, bool masks,
                                    std::uint32_t channel, float y, float g) {
  if (masks && !bounds.pass(y * behind.scale[channel] + behind.shift[channel])) g = 0.0F;
  return behind.slope_g[channel] * g + (behind.slope_x[channel] * y + behind.shift_g[channel]);
}

// The gradient of the result from that behind the normalisation, of the calling thread's units of a slice.
template <std::uint32_t kSlices, unsigned kPacks>
__device__ inline void put_gradients(const Behind<kSlices>& behind, const Bounds& bounds, bool masks,
                                     std::uint32_t slice, const RowPack (&y)[kPacks], const RowPack (&g)[kPacks],
                                     std::uint32_t left, Unit* tile) {
  const std::uint32_t channel = slice * kSliceChannels + threadIdx.x * kUnitChannels;
#pragma unroll
  for (unsigned i = 0; i < kPacks; ++i) {
    const std::uint32_t row = threadIdx.y + i * blockDim.y;
    RowPack result{};
    for (unsigned j = 0; j < kUnitChannels; j += 2) {
      result.pairs[j / 2] =
          row < left ? pair_of(gradient_of(behind, bounds, masks, channel + j, y[i].lower(j), g[i].lower(j)),
                               gradient_of(behind, bounds, masks, channel + j + 1, y[i].upper(j), g[i].upper(j)))
                     : 0;
    }
    put_pack(tile, row, result);
  }
}

// The input, normalised if there is a normalisation in front, of the calling thread's units.
template <bool kNormalises, std::uint32_t kSlices, unsigned kPacks>
__device__ inline void put_inputs(const InFront& in_front, const Bounds& bounds, const RowPack (&x)[kPacks],
                                  Tiles<kSlices>& tiles) {
#pragma unroll
  for (unsigned i = 0; i < kPacks; ++i) {
    RowPack result = x[i];
    if constexpr (kNormalises) {
      tiles.read[tile_thread() + i * kBlockThreads<kSlices>] = x[i];
      result = each_value(x[i], [&](float value, unsigned j) {
        const unsigned c = threadIdx.x * kUnitChannels + j;
        return bounds.clamp(value * in_front.scale[c] + in_front.shift[c]);
      });
    }
    put_pack(tiles.inputs, threadIdx.y + i * blockDim.y, result);
  }
}

// Adds the calling thread's units of what is to be written to dx to its sums, without the gradients that do not pass the activation
// of the normalisation in front.
template <std::uint32_t kSlices>
__device__ inline RowPack add_to_sums(Shared<kSlices>& shared, const Bounds& bounds, const RowPack& x,
                                      const RowPack& gradient) {
  RowPack result{};
  for (unsigned j = 0; j < kUnitChannels; j += 2) {
    float passed[2];
    for (unsigned half = 0; half < 2; ++half) {
      const unsigned c = threadIdx.x * kUnitChannels + j + half;
      const float value = half == 0 ? x.lower(j) : x.upper(j);
      const float g = half == 0 ? gradient.lower(j) : gradient.upper(j);
      passed[half] = bounds.pass(value * shared.in_front.scale[c] + shared.in_front.shift[c]) ? g : 0.0F;
      Sums& sums = shared.tree[j + half][tile_thread()];
      sums = added(sums, {passed[half], passed[half] * (value - shared.in_front.mean[c])});
    }
    result.pairs[j / 2] = pair_of(passed[0], passed[1]);
  }
  return result;
}

__device__ inline RowPack sum_of(const RowPack& a, const RowPack& b) {
  RowPack sum{};
  for (unsigned j = 0; j < kUnitChannels; j += 2) {
    sum.pairs[j / 2] = pair_of(a.lower(j) + b.lower(j), a.upper(j) + b.upper(j));
  }
  return sum;
}

// Writes the input's gradient of a tile from shared memory, of the calling thread's units.
template <bool kNormalises, std::uint32_t kSlices, class InputRows>
__device__ inline void put_results(const Tensors& t, Shared<kSlices>& shared, const Bounds& bounds,
                                   const InputRows& input_rows, std::uint32_t first, std::uint32_t end,
                                   std::uint32_t channels, std::uint32_t channel) {
  constexpr unsigned kPacks = kTileRows * kSliceUnits / kBlockThreads<kSlices>;
#pragma unroll
  for (unsigned i = 0; i < kPacks; ++i) {
    const std::uint32_t row = threadIdx.y + i * blockDim.y;
    if (first + row >= end) continue;
    auto& to =
        *reinterpret_cast<RowPack*>(t.dx + static_cast<std::size_t>(input_rows(first + row)) * channels + channel);
    const RowPack computed = get_pack_of(shared.tiles.results, row);
    if constexpr (kNormalises) {
      to = add_to_sums(shared, bounds, shared.tiles.read[tile_thread() + i * kBlockThreads<kSlices>], computed);
    } else {
      to = t.add ? sum_of(to, computed) : computed;
    }
  }
}

template <std::uint32_t kSlices, unsigned kUnits>
__device__ inline void put_weight_sums(const WarpPart<kUnits>& part, const Rows& rows, const Slices& tiling,
                                       const float (&sums)[kSlices][kUnits][4], float* partial) {
#pragma unroll
  for (std::uint32_t slice = 0; slice < kSlices; ++slice) {
    part.each_pair(sums[slice], [&](unsigned row, unsigned unit, unsigned of_unit, float one, float two) {
      const std::size_t output = (std::size_t{tiling.chunk()} * kSlices + slice) * kSliceChannels + part.band + row;
      const std::uint32_t channel = tiling.group() * kSliceChannels + unit * kUnitChannels + of_unit;
      put_some<2>(partial, output * rows.channels + channel, {one, two});
    });
  }
}

template <std::uint32_t kSlices, bool kNormalises, class InputRows>
__global__ void __launch_bounds__(kBlockThreads<kSlices>, 512 / kBlockThreads<kSlices>)
    conv1x1_backward_kernel(const Rows rows, const InputRows input_rows, const Slices tiling, const Tensors t,
                            const Normalizer before, const Normalizer after, const NormalizerGradient gradient,
                            float* before_weight, float* before_bias) {
  constexpr unsigned kPacks = kTileRows * kSliceUnits / kBlockThreads<kSlices>;
  constexpr unsigned kUnits = kSliceUnits / (kBlockThreads<kSlices> / 128);
  constexpr std::uint32_t kOutputs = kSlices * kSliceChannels;
  auto& shared = dynamic_shared<Shared<kSlices>>();
  auto& tiles = shared.tiles;
  const WarpPart<kUnits> part;
  const std::uint32_t of_slice = threadIdx.x * kUnitChannels;
  const std::uint32_t channel = tiling.channel(kUnitChannels);
  shared.behind.fill(after, gradient);
  if constexpr (kNormalises) {
    shared.in_front.fill(before, tiling.group());
    for (unsigned j = 0; j < kUnitChannels; ++j) shared.tree[j][tile_thread()] = {};
  }
  for (std::uint32_t slice = 0; slice < kSlices; ++slice) {
    load_factors(t.weights, rows.channels, slice * kSliceChannels, tiling.group() * kSliceChannels,
                 tiles.weights + slice * kSliceChannels * kSlicePitch);
  }
  const bool masks = after.bounds.low > -HUGE_VALF;
  const std::uint32_t begin = tiling.begin_of(tiling.chunk());
  const std::uint32_t end = begin + tiling.rows_in(rows, tiling.chunk());
  float weight_sums[kSlices][kUnits][4] = {};
  RowPack x[kPacks];
  RowPack y[kPacks];
  RowPack g[kPacks];
  if (kPrefetchesInputs<kSlices>) load_packs(t.x, rows.channels, channel, begin, end, x, input_rows);
  load_packs(t.y, kOutputs, of_slice, begin, end, y);
  load_packs(t.g, kOutputs, of_slice, begin, end, g);
  __syncthreads();
  for (std::uint32_t first = begin; first < end; first += kTileRows) {
    float data_sums[kUnits][4] = {};
#pragma unroll
    for (std::uint32_t slice = 0; slice < kSlices; ++slice) {
      if (slice > 0) __syncthreads();
      if (slice == 0 && !kPrefetchesInputs<kSlices>) load_packs(t.x, rows.channels, channel, first, end, x, input_rows);
      if (slice == 0) put_inputs<kNormalises>(shared.in_front, before.bounds, x, tiles);
      put_gradients<kSlices>(shared.behind, after.bounds, masks, slice, y, g, end - first, tiles.gradients);
      __syncthreads();
      // Those of the next turn, while this one is multiplied.
      const bool last = slice + 1 == kSlices;
      const std::uint32_t next_row = last ? first + kTileRows : first;
      const std::uint32_t next_channel = of_slice + (last ? 0 : (slice + 1) * kSliceChannels);
      load_packs(t.y, kOutputs, next_channel, next_row, end, y);
      load_packs(t.g, kOutputs, next_channel, next_row, end, g);
      if (last && kPrefetchesInputs<kSlices>) load_packs(t.x, rows.channels, channel, next_row, end, x, input_rows);
      add_data_products<kSlicePitch>(part, tiles.gradients, tiles.weights + slice * kSliceChannels * kSlicePitch,
                                     data_sums);
      add_weight_products<kSlicePitch>(part, tiles.gradients, tiles.inputs, weight_sums[slice]);
    }
    part.each_pair(data_sums, [&](unsigned row, unsigned unit, unsigned of_unit, float one, float two) {
      put_some<2>(tiles.results[(part.band + row) * kSlicePitch + unit].values, of_unit, {one, two});
    });
    __syncthreads();
    put_results<kNormalises>(t, shared, before.bounds, input_rows, first, end, rows.channels, channel);
  }
  put_weight_sums(part, rows, tiling, weight_sums, t.partial_weights);
  if constexpr (kNormalises) {
    __syncthreads();
    merge_chunk_sums(rows, tiling, shared.tree, channel, t.partial);
    if (!is_last_block(tickets + tiling.group(), tiling.chunks())) return;
    each_channel<kUnitChannels>(rows, tiling, t.partial, shared.chunks, [&](std::uint32_t c, const Sums& all) {
      before_bias[c] = all.first;
      before_weight[c] = all.second * before.means[rows.channels + c];
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

// sums[i] = the sum of partial[chunk][i] over all chunks, for i below `count`, a multiple of 4; both are aligned to 16 bytes.
void add_up_chunks(cudaStream_t stream, const float* partial, unsigned chunks, unsigned count, float* sums) {
  constexpr unsigned kSumsOfBlock = 4 * kSumColumns;
  launch(stream, (count + kSumsOfBlock - 1) / kSumsOfBlock, dim3(kSumColumns, kSumLines), chunk_sums_kernel, partial,
         chunks, count, sums);
}

// Those of the result, of the input's channels.
Rows rows_of_input(const ConvSpec& spec, std::int64_t samples) {
  const Shape result = spec.convolved();
  return rows_of(samples, {spec.input.channels, result.height, result.width}, Layout::nhwc);
}

template <class F>
void with_slices(std::int64_t outputs, F f) {
  const auto slices = static_cast<std::uint32_t>(outputs / kSliceChannels);
  static_assert(kMostSlicesOfResult == 8);
  if (slices == 1) {
    f(std::integral_constant<std::uint32_t, 1>());
  } else if (slices == 2) {
    f(std::integral_constant<std::uint32_t, 2>());
  } else if (slices == 4) {
    f(std::integral_constant<std::uint32_t, 4>());
  } else {
    f(std::integral_constant<std::uint32_t, 8>());
  }
}

}  // namespace

bool conv1x1_takes(Element element, const ConvSpec& s) {
  constexpr std::int64_t kSlice = kSliceChannels;
  const std::int64_t slices = s.output_channels / kSlice;
  const Window2d window{.stride = s.window.stride};
  ConvSpec without_stride = s;
  without_stride.window.stride = 1;
  return s.window == window && window.stride.vertical == window.stride.horizontal &&
         multiplies_units(element, without_stride) && s.input.channels % kSlice == 0 &&
         s.output_channels % kSlice == 0 && slices <= kMostSlicesOfResult && (slices & (slices - 1)) == 0;
}

bool conv1x1_takes_behind_norm(Element element, const ConvSpec& s) {
  return conv1x1_takes(element, s) && s.window == Window2d{} && s.input.channels <= kMostNormalised;
}

std::size_t conv1x1_shared_bytes(const ConvSpec& spec) {
  std::size_t bytes = 0;
  with_slices(spec.output_channels, [&](auto slices) { bytes = sizeof(Shared<decltype(slices)::value>); });
  return bytes;
}

std::int64_t conv1x1_backward_sums(const ConvSpec& spec) {
  const Slices tiling(rows_of_input(spec, spec.batch));
  return std::int64_t{tiling.chunks()} * (2 * spec.input.channels + spec.weights());
}

void conv1x1_backward(cudaStream_t stream, const ConvSpec& spec, const Conv1x1Arguments& a) {
  const Rows rows = rows_of_input(spec, a.samples);
  const Slices tiling(rows);
  const Tensors tensors{as<__nv_bfloat16>(a.x),
                        as<__nv_bfloat16>(a.y),
                        as<__nv_bfloat16>(a.g),
                        as<__nv_bfloat16>(a.dx),
                        a.add,
                        a.weights,
                        a.partial_sums,
                        a.partial_sums + std::size_t{2} * tiling.chunks() * rows.channels};
  const auto outputs = static_cast<std::uint32_t>(spec.output_channels);
  const NormalizerGradient gradient{a.of_after.means,      a.of_after.weight, a.after_weight_gradient,
                                    a.after_bias_gradient, outputs,           1.0F / static_cast<float>(rows.rows)};
  Normalizer after = normalizer_of(*a.after, a.of_after.means, a.of_after.weight, a.of_after.bias);
  after.bounds = bounds_of(a.activation);
  const Normalizer before = a.before == nullptr ? Normalizer{} : normalizer_in_front(*a.before, a.of_before);
  with_slices(spec.output_channels, [&](auto slices) {
    constexpr std::uint32_t kSlices = decltype(slices)::value;
    const auto run = [&](auto kernel, auto input_rows) {
      launch_with<Shared<kSlices>>(
          stream, dim3(tiling.blocks()), dim3(kSliceUnits, kBlockThreads<kSlices> / kSliceUnits), kernel, rows,
          input_rows, tiling, tensors, before, after, gradient, a.before_weight_gradient, a.before_bias_gradient);
    };
    if (a.before != nullptr) return run(conv1x1_backward_kernel<kSlices, true, EveryRow>, EveryRow{});
    with_input_rows(
        spec, [&](auto input_rows) { run(conv1x1_backward_kernel<kSlices, false, decltype(input_rows)>, input_rows); });
  });
  add_up_chunks(stream, tensors.partial_weights, tiling.chunks(), static_cast<unsigned>(spec.weights()),
                a.weights_gradient);
}

}  // namespace ddp::cuda
