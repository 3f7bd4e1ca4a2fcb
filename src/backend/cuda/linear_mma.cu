// See linear_mma.h.
#include "backend/cuda/conv_tile.cuh"
#include "backend/cuda/last_block.cuh"
#include "backend/cuda/linear_mma.h"
#include "backend/cuda/loss.cuh"

namespace ddp::cuda {
namespace {

constexpr unsigned kTileRows = 32;
constexpr unsigned kTileColumns = 32;
constexpr unsigned kMostDepth = 256;      // of a step
constexpr unsigned kDepthWithMask = 128;  // registers hold what is loaded in advance
constexpr unsigned kBlockThreads = 256;
constexpr unsigned kWarps = kBlockThreads / 32;
// From row to row of a warp's sums, so that the rows of a half warp are in different banks.
constexpr unsigned kSumsPitch = kTileColumns + 8;

// Larger products are left to libraries.
constexpr double kMostMultiplyAdds = 1 << 30U;
constexpr double kSmallMultiplyAdds = 1 << 27U;

// A matrix in memory, row by row.
struct Factor {
  const __nv_bfloat16* values;
  const __nv_bfloat16* y;       // with ReLU: what it returned, where `values` is a gradient behind it; otherwise null
  std::uint32_t rows, columns;  // beyond them it is zero
  std::uint32_t width;          // of its aligned vectors
  bool ones;                    // it has one more column, of ones
};

Factor factor_of(const void* values, std::int64_t rows, std::int64_t columns) {
  const std::uint32_t width = columns % 8 == 0 ? 8 : columns % 4 == 0 ? 4 : columns % 2 == 0 ? 2 : 1;
  return {as<__nv_bfloat16>(values),           nullptr, static_cast<std::uint32_t>(rows),
          static_cast<std::uint32_t>(columns), width,   false};
}

// Eight values of a row of a narrow factor.
template <unsigned kWidth>
__device__ inline Unit load_unit(const Factor& f, std::uint32_t row, std::uint32_t column) {
  Unit unit;
  for (unsigned j = 0; j < kChannelsOfUnit; j += kWidth) {
    Pack<__nv_bfloat16, kWidth> pack;
    if (row < f.rows && column + j < f.columns) {
      const std::size_t i = static_cast<std::size_t>(row) * f.columns + column + j;
      pack = get_pack<kWidth>(f.values, i);
      if (f.y != nullptr) {
        const Pack<__nv_bfloat16, kWidth> y = get_pack<kWidth>(f.y, i);
        for (unsigned k = 0; k < kWidth; ++k) {
          put(pack.values, k, relu_gradient(get(y.values, k), get(pack.values, k)));
        }
      }
    } else {
      for (unsigned k = 0; k < kWidth; ++k) put(pack.values, k, 0.0F);
    }
    for (unsigned k = 0; k < kWidth; ++k) unit.values[j + k] = pack.values[k];
  }
  return unit;
}

// The column of ones.
__device__ inline void put_ones(const Factor& f, std::uint32_t row, std::uint32_t column, Unit& unit) {
  if (!f.ones || row >= f.rows) return;
  for (unsigned j = 0; j < kChannelsOfUnit; ++j) {
    if (column + j == f.columns) put(unit.values, j, 1.0F);
  }
}

// A part of a factor in shared memory: kLines rows of kUnits units. Of a factor with aligned rows a thread's share is loaded in
// advance: all of it at once, from the first row where there is none, since a branch would wait for its load. Others are
// narrow, and loaded when they are stored.
template <unsigned kLines, unsigned kUnits, bool kMasked>
struct TileOf {
  static constexpr unsigned kPitch = pitch_of(kUnits);
  static constexpr unsigned kSize = kLines * kPitch;
  static constexpr unsigned kShare = kLines * kUnits / kBlockThreads;
  static_assert(kShare * kBlockThreads == kLines * kUnits);
  Unit share[kShare];
  Unit masks[kMasked ? kShare : 1];  // Factor::y

  __device__ static unsigned line(unsigned k) { return (k * kBlockThreads + threadIdx.x) / kUnits; }
  __device__ static unsigned unit(unsigned k) { return (k * kBlockThreads + threadIdx.x) % kUnits; }

  __device__ void load(const Factor& f, std::uint32_t row, std::uint32_t column) {
    if (f.width != kChannelsOfUnit) return;
#pragma unroll
    for (unsigned k = 0; k < kShare; ++k) {
      const std::uint32_t r = row + line(k);
      const std::uint32_t c = column + unit(k) * kChannelsOfUnit;
      const std::size_t i = r < f.rows && c < f.columns ? static_cast<std::size_t>(r) * f.columns + c : 0;
      share[k] = *reinterpret_cast<const Unit*>(f.values + i);
      if (kMasked && f.y != nullptr) masks[k] = *reinterpret_cast<const Unit*>(f.y + i);
    }
  }

  __device__ void store(const Factor& f, std::uint32_t row, std::uint32_t column, Unit* tile) const {
    if (f.width == kChannelsOfUnit) {
#pragma unroll
      for (unsigned k = 0; k < kShare; ++k) tile[line(k) * kPitch + unit(k)] = loaded(f, k, row, column);
    } else if (f.width == 4) {
      load_and_store<4>(f, row, column, tile);
    } else if (f.width == 2) {
      load_and_store<2>(f, row, column, tile);
    } else {
      load_and_store<1>(f, row, column, tile);
    }
  }

 private:
  __device__ Unit loaded(const Factor& f, unsigned k, std::uint32_t row, std::uint32_t column) const {
    const std::uint32_t r = row + line(k);
    const std::uint32_t c = column + unit(k) * kChannelsOfUnit;
    Unit result = share[k];
    if (kMasked && f.y != nullptr) {
      for (unsigned j = 0; j < kChannelsOfUnit; ++j) {
        put(result.values, j, relu_gradient(get(masks[k].values, j), get(result.values, j)));
      }
    }
    if (r >= f.rows || c >= f.columns) {
      for (unsigned j = 0; j < kChannelsOfUnit; ++j) put(result.values, j, 0.0F);
    }
    put_ones(f, r, c, result);
    return result;
  }

  template <unsigned kWidth>
  __device__ static void load_and_store(const Factor& f, std::uint32_t row, std::uint32_t column, Unit* tile) {
#pragma unroll 1
    for (unsigned k = 0; k < kShare; ++k) {
      const std::uint32_t r = row + line(k);
      const std::uint32_t c = column + unit(k) * kChannelsOfUnit;
      Unit result = load_unit<kWidth>(f, r, c);
      put_ones(f, r, c, result);
      tile[line(k) * kPitch + unit(k)] = result;
    }
  }
};

// Room for a step's factors, and in the end for the sums of all warps.
union Tiles {
  struct {
    Unit a[kMostDepth * pitch_of(kTileRows / kChannelsOfUnit)];
    Unit b[kMostDepth * pitch_of(kTileColumns / kChannelsOfUnit)];
  } factors;
  float sums[kWarps][kTileRows][kSumsPitch];
};

// Of a warp: tiles of 16 x 8 values, as in Note [Fragments].
using WarpSums = float[kTileRows / 16][kTileColumns / 8][4];

// The calling warp's part of a step of the depth, from shared memory.
template <class A, class B, unsigned kDepth, bool kDepthIsRowsOfA, bool kDepthIsRowsOfB>
__device__ inline void multiply_step(const Unit* a, const Unit* b, std::uint32_t depth, WarpSums& sums) {
  constexpr unsigned kDepthOfWarp = kDepth / kWarps;
  const unsigned lane = threadIdx.x % 32;
  const unsigned begin = threadIdx.x / 32 * kDepthOfWarp;
  converge();
  for (unsigned k = begin; k < begin + kDepthOfWarp; k += 16) {
    if (k >= depth) return;
    Matrices rows[kTileRows / 16];
    for (unsigned m = 0; m < kTileRows / 16; ++m) {
      if constexpr (kDepthIsRowsOfA) {
        rows[m] = load_transposed(a + (k + lane % 8 + lane / 16 * 8) * A::kPitch + 2 * m + lane / 8 % 2);
      } else {
        rows[m] = load_matrices(a + (16 * m + lane % 16) * A::kPitch + k / kChannelsOfUnit + lane / 16);
      }
    }
    for (unsigned n = 0; n < kTileColumns / 16; ++n) {
      Matrices columns;
      if constexpr (kDepthIsRowsOfB) {
        columns = load_transposed(b + (k + lane % 16) * B::kPitch + 2 * n + lane / 16);
      } else {
        columns =
            load_matrices(b + (16 * n + lane % 8 + lane / 16 * 8) * B::kPitch + k / kChannelsOfUnit + lane / 8 % 2);
      }
      for (unsigned m = 0; m < kTileRows / 16; ++m) {
        multiply_add(sums[m][2 * n], rows[m], columns.values[0], columns.values[1]);
        multiply_add(sums[m][2 * n + 1], rows[m], columns.values[2], columns.values[3]);
      }
    }
  }
}

// Leaves the sums of all warps in shared memory.
__device__ inline void put_sums(const WarpSums& sums, Tiles& tiles) {
  const unsigned lane = threadIdx.x % 32;
  __syncthreads();
  for (unsigned m = 0; m < kTileRows / 16; ++m) {
    for (unsigned n = 0; n < kTileColumns / 8; ++n) {
      for (unsigned half = 0; half < 2; ++half) {
        float* place = &tiles.sums[threadIdx.x / 32][16 * m + lane / 4 + 8 * half][8 * n + lane % 4 * 2];
        *reinterpret_cast<float2*>(place) = {sums[m][n][2 * half], sums[m][n][2 * half + 1]};
      }
    }
  }
  __syncthreads();
}

// Calls f(row, column, first, second) for a thread's values in the tile, pairs of adjacent columns. The sums of the warps are
// added in order.
template <class F>
__device__ inline void each_pair(const Tiles& tiles, F f) {
  for (unsigned i = threadIdx.x; i < kTileRows * kTileColumns / 2; i += kBlockThreads) {
    const unsigned row = i / (kTileColumns / 2);
    const unsigned column = i % (kTileColumns / 2) * 2;
    float first = 0.0F;
    float second = 0.0F;
    for (unsigned warp = 0; warp < kWarps; ++warp) {
      const float2 some = *reinterpret_cast<const float2*>(&tiles.sums[warp][row][column]);
      first += some.x;
      second += some.y;
    }
    f(row, column, first, second);
  }
}

// The block's tile of the product, see Note [Tiles of a product]. A factor has the depth as its columns, or as its rows.
// kMasked: a may be a gradient behind ReLU.
template <unsigned kDepth, bool kDepthIsRowsOfA, bool kDepthIsRowsOfB, bool kMasked>
__device__ inline void multiply_tile(const Factor& a, const Factor& b, std::uint32_t first_row,
                                     std::uint32_t first_column, std::uint32_t depth, Tiles& tiles) {
  constexpr unsigned kUnitsOfDepth = kDepth / kChannelsOfUnit;
  using A = std::conditional_t<kDepthIsRowsOfA, TileOf<kDepth, kTileRows / kChannelsOfUnit, kMasked>,
                               TileOf<kTileRows, kUnitsOfDepth, kMasked>>;
  using B = std::conditional_t<kDepthIsRowsOfB, TileOf<kDepth, kTileColumns / kChannelsOfUnit, false>,
                               TileOf<kTileColumns, kUnitsOfDepth, false>>;
  static_assert(sizeof(Unit) * A::kSize <= sizeof(tiles.factors.a) &&
                sizeof(Unit) * B::kSize <= sizeof(tiles.factors.b));
  A a_tile;
  B b_tile;
  WarpSums sums = {};
  const auto load = [&](std::uint32_t k) {
    a_tile.load(a, kDepthIsRowsOfA ? k : first_row, kDepthIsRowsOfA ? first_row : k);
    b_tile.load(b, kDepthIsRowsOfB ? k : first_column, kDepthIsRowsOfB ? first_column : k);
  };
  load(0);
  for (std::uint32_t k = 0; k < depth; k += kDepth) {
    __syncthreads();
    a_tile.store(a, kDepthIsRowsOfA ? k : first_row, kDepthIsRowsOfA ? first_row : k, tiles.factors.a);
    b_tile.store(b, kDepthIsRowsOfB ? k : first_column, kDepthIsRowsOfB ? first_column : k, tiles.factors.b);
    __syncthreads();
    // The next ones are loaded meanwhile.
    if (k + kDepth < depth) load(k + kDepth);
    multiply_step<A, B, kDepth, kDepthIsRowsOfA, kDepthIsRowsOfB>(tiles.factors.a, tiles.factors.b, depth - k, sums);
  }
  put_sums(sums, tiles);
}

// --- forward

struct Forward {
  Factor x, weights;
  const float* bias;  // null: 0
  __nv_bfloat16* y;
  bool relu;
};

// The results of two adjacent outputs of a sample.
struct OutputPair {
  float first, second;

  __device__ OutputPair(const Forward& p, std::uint32_t output, float a, float b)
      : first(a + bias_of(p, output)), second(b + bias_of(p, output + 1)) {
    if (!p.relu) return;
    first = relu(first);
    second = relu(second);
  }
  __device__ static float bias_of(const Forward& p, std::uint32_t output) {
    return p.bias == nullptr || output >= p.weights.rows ? 0.0F : p.bias[output];
  }
};

__device__ inline void compute_outputs(const Forward& p, Tiles& tiles) {
  const std::uint32_t first_row = blockIdx.x * kTileRows;
  const std::uint32_t first_column = blockIdx.y * kTileColumns;
  multiply_tile<kMostDepth, false, false, false>(p.x, p.weights, first_row, first_column, p.x.columns, tiles);
  each_pair(tiles, [&](unsigned row, unsigned column, float first, float second) {
    const std::uint32_t output = first_column + column;
    if (first_row + row >= p.x.rows || output >= p.weights.rows) return;
    const OutputPair pair(p, output, first, second);
    put_pair(p.y, first_row + row, output, p.weights.rows, pair.first, pair.second);
  });
}

// Block (samples, outputs).
__global__ void __launch_bounds__(kBlockThreads, 2)
    linear_forward_kernel(const PreviousKernel previous, const Forward p) {
  previous.wait();
  __shared__ Tiles tiles;
  compute_outputs(p, tiles);
}

__device__ std::uint32_t loss_ticket;

// Block (samples): it has all logits of its samples, in the order in which a separate kernel would read them.
__global__ void __launch_bounds__(kBlockThreads, 2)
    linear_loss_kernel(const PreviousKernel previous, const Forward p, const LossInputs in, __nv_bfloat16* gradient,
                       double* partial) {
  previous.wait();
  constexpr unsigned kGroup = kBlockThreads / kTileRows;  // threads of a sample
  __shared__ Tiles tiles;
  __shared__ __nv_bfloat16 logits[kTileRows][kTileColumns];
  __shared__ double tree[kBlockThreads];
  compute_outputs(p, tiles);
  each_pair(tiles, [&](unsigned row, unsigned column, float first, float second) {
    const OutputPair pair(p, column, first, second);
    put(logits[row], column, pair.first);
    put(logits[row], column + 1, pair.second);
  });
  __syncthreads();
  const unsigned row = threadIdx.x / kGroup;
  const std::uint32_t sample = blockIdx.x * kTileRows + row;
  SampleLoss mine =
      sample_loss<kGroup>(in, sample, static_cast<const __nv_bfloat16*>(logits[row]),
                          gradient == nullptr ? gradient : gradient + static_cast<std::size_t>(sample) * in.classes);
  mine.loss = sum_of_block(tree, mine.loss);
  mine.correct = sum_of_block(tree, mine.correct);
  if (threadIdx.x == 0) {
    partial[2 * blockIdx.x] = mine.loss;
    partial[2 * blockIdx.x + 1] = mine.correct;
  }
  if (!is_last_block(&loss_ticket, gridDim.x)) return;
  mine = {0, 0};
  for (std::uint32_t block = threadIdx.x; block < gridDim.x; block += kBlockThreads) {
    mine.loss += __ldcg(partial + 2 * block);
    mine.correct += __ldcg(partial + 2 * block + 1);
  }
  mine.loss = sum_of_block(tree, mine.loss);
  mine.correct = sum_of_block(tree, mine.correct);
  if (threadIdx.x == 0) {
    *in.loss_sum = mine.loss;
    *in.correct += mine.correct;
  }
}

// --- backward

struct Backward {
  Factor x, weights, gradient;  // the gradient before bias and ReLU
  std::uint32_t channels, positions;
  float* weight_gradient;
  float* bias_gradient;                     // null: none
  __nv_bfloat16* dx;                        // null: none
  std::uint32_t data_columns, data_blocks;  // of blocks
  std::uint32_t weight_columns;
};

// Where the gradient of a packed weight belongs in the plain order; that of a bias is behind them.
__device__ inline void put_gradient(const Backward& p, std::uint32_t output, std::uint32_t input, float value) {
  if (input < p.x.columns) {
    const std::uint32_t plain = input % p.channels * p.positions + input / p.channels;
    p.weight_gradient[static_cast<std::size_t>(output) * p.x.columns + plain] = value;
  } else if (input == p.x.columns && p.bias_gradient != nullptr) {
    p.bias_gradient[output] = value;
  }
}

// First the blocks of the input's gradient.
__global__ void __launch_bounds__(kBlockThreads, 2)
    linear_backward_kernel(const PreviousKernel previous, const Backward p) {
  previous.wait();
  __shared__ Tiles tiles;
  if (blockIdx.x < p.data_blocks) {
    const std::uint32_t first_row = blockIdx.x / p.data_columns * kTileRows;
    const std::uint32_t first_column = blockIdx.x % p.data_columns * kTileColumns;
    multiply_tile<kDepthWithMask, false, true, true>(p.gradient, p.weights, first_row, first_column, p.gradient.columns,
                                                     tiles);
    each_pair(tiles, [&](unsigned row, unsigned column, float first, float second) {
      if (first_row + row >= p.x.rows || first_column + column >= p.x.columns) return;
      put_pair(p.dx, first_row + row, first_column + column, p.x.columns, first, second);
    });
    return;
  }
  const std::uint32_t block = blockIdx.x - p.data_blocks;
  const std::uint32_t first_row = block / p.weight_columns * kTileRows;
  const std::uint32_t first_column = block % p.weight_columns * kTileColumns;
  multiply_tile<kDepthWithMask, true, true, true>(p.gradient, p.x, first_row, first_column, p.x.rows, tiles);
  each_pair(tiles, [&](unsigned row, unsigned column, float first, float second) {
    if (first_row + row >= p.gradient.columns) return;
    put_gradient(p, first_row + row, first_column + column, first);
    put_gradient(p, first_row + row, first_column + column + 1, second);
  });
}

unsigned blocks_over(std::int64_t count, unsigned each) { return static_cast<unsigned>((count + each - 1) / each); }

}  // namespace

bool linear_mma_takes(const LinearSpec& spec) { return spec.parts == 1 && spec.multiply_adds() <= kMostMultiplyAdds; }

bool linear_mma_is_small(const LinearSpec& spec) { return spec.multiply_adds() <= kSmallMultiplyAdds; }

bool linear_mma_takes_loss(const LinearSpec& spec) { return spec.outputs <= kTileColumns; }

PackedShape linear_mma_packed(const LinearSpec& spec, std::int64_t positions) {
  return {spec.outputs, spec.inputs / positions, positions, PackedForm::weight_rows};
}

std::int64_t linear_mma_partial_loss(const LinearSpec& spec) {
  return linear_mma_takes_loss(spec) ? 2 * blocks_over(spec.batch, kTileRows) : 0;
}

void linear_mma_forward(cudaStream_t stream, const LinearSpec& spec, const LinearMmaForward& a) {
  const dim3 blocks(blocks_over(spec.batch, kTileRows), blocks_over(spec.outputs, kTileColumns));
  if (blocks.x == 0) return;
  const Forward forward{factor_of(a.x, spec.batch, spec.inputs), factor_of(a.packed, spec.outputs, spec.inputs), a.bias,
                        as<__nv_bfloat16>(a.y), spec.relu};
  if (a.loss == nullptr) {
    launch(stream, blocks, kBlockThreads, linear_forward_kernel, forward);
  } else {
    launch(stream, blocks, kBlockThreads, linear_loss_kernel, forward, loss_inputs(a.loss->spec, a.loss->arguments),
           as<__nv_bfloat16>(a.loss->arguments.gradient.data()), a.partial_loss);
  }
}

void linear_mma_backward(cudaStream_t stream, const LinearSpec& spec, const LinearMmaBackward& a) {
  Backward p{};
  p.x = factor_of(a.x, spec.batch, spec.inputs);
  p.x.ones = spec.bias;
  p.weights = factor_of(a.packed, spec.outputs, spec.inputs);
  p.gradient = factor_of(a.dy, spec.batch, spec.outputs);
  if (spec.relu) p.gradient.y = as<__nv_bfloat16>(a.y);
  p.channels = static_cast<std::uint32_t>(spec.inputs / a.positions);
  p.positions = static_cast<std::uint32_t>(a.positions);
  p.weight_gradient = a.weight_gradient;
  p.bias_gradient = a.bias_gradient;
  p.dx = spec.input_gradient ? as<__nv_bfloat16>(a.dx) : nullptr;
  p.data_columns = blocks_over(spec.inputs, kTileColumns);
  p.data_blocks = spec.input_gradient ? p.data_columns * blocks_over(spec.batch, kTileRows) : 0;
  p.weight_columns = blocks_over(spec.inputs + (spec.bias ? 1 : 0), kTileColumns);
  launch(stream, p.data_blocks + p.weight_columns * blocks_over(spec.outputs, kTileRows), kBlockThreads,
         linear_backward_kernel, p);
}

}  // namespace ddp::cuda
