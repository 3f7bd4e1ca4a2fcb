// See linear_mma.h.
#include "backend/cuda/async_copy.cuh"
#include "backend/cuda/conv_tile.cuh"
#include "backend/cuda/divisor.cuh"
#include "backend/cuda/last_block.cuh"
#include "backend/cuda/linear_mma.h"
#include "backend/cuda/loss.cuh"

namespace ddp::cuda {
namespace {

constexpr unsigned kTileRows = 32;
constexpr unsigned kTileColumns = 32;
constexpr unsigned kBlockThreads = 256;
constexpr unsigned kWarps = kBlockThreads / 32;
constexpr unsigned kStepDepth = 16;    // of a product of a warp
constexpr unsigned kStepsAtOnce = 2;   // that a warp loads
constexpr unsigned kRoundDepth = 256;  // of all warps then
// Of a factor for a step: 32 rows of 2 units, or 16 rows of 4.
constexpr unsigned kSliceUnits = kStepDepth * kTileRows / kChannelsOfUnit;
// From row to row of a warp's sums, so that the rows of a half warp are in different banks.
constexpr unsigned kSumsPitch = kTileColumns + 8;

// Larger products are left to libraries.
constexpr double kMostMultiplyAdds = 1 << 30U;
constexpr double kSmallMultiplyAdds = 1 << 27U;

// A matrix in memory, row by row.
struct Factor {
  const __nv_bfloat16* values;
  std::uint32_t rows, columns;  // beyond them it is zero
  std::uint32_t width;          // of its aligned vectors
  bool ones;                    // it has one more column, of ones
};

Factor factor_of(const void* values, std::int64_t rows, std::int64_t columns) {
  const std::uint32_t width = columns % 8 == 0 ? 8 : columns % 4 == 0 ? 4 : columns % 2 == 0 ? 2 : 1;
  return {as<__nv_bfloat16>(values), static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(columns), width,
          false};
}

// Where a slice has a unit of one of its lines: neighbouring lines are in different banks.
__device__ inline unsigned slice_place(bool depth_is_rows, unsigned line, unsigned unit) {
  return depth_is_rows ? 4 * line + (unit ^ line / 2 % 4) : 2 * line + (unit ^ line / 4 % 2);
}

// A product has two factors, whose depths are their columns or their rows; kMasked: the first one may be a gradient behind
// ReLU, and then there is what that returned, of the same form.
template <bool kMasked>
inline constexpr unsigned kFactorsOf = kMasked ? 3 : 2;

// Of a warp: slices of its factors, and in the end its sums.
template <bool kMasked>
union WarpRoom {
  Unit slices[kStepsAtOnce][kFactorsOf<kMasked>][kSliceUnits];
  float sums[kTileRows][kSumsPitch];
};
template <bool kMasked>
using Rooms = WarpRoom<kMasked>[kWarps];

// Values of a unit, as many as are aligned, or zeros.
__device__ inline void copy_aligned(const Factor& f, bool exists, std::uint32_t i, __nv_bfloat16* target) {
  const __nv_bfloat16* source = f.values + (exists ? i : 0);
  if (f.width == 8) {
    copy_async_if<16>(exists, target, source);
  } else if (f.width == 4) {
    copy_async_if<8>(exists, target, source);
  } else {
    copy_async_if<4>(exists, target, source);
  }
}

// The same one by one, with several loads in flight.
__device__ inline void copy_values(const Factor& f, bool exists, std::uint32_t i, std::uint32_t column, Unit* target) {
  Unit unit;
#pragma unroll
  for (unsigned j = 0; j < kChannelsOfUnit; ++j) {
    unit.values[j] = __float2bfloat16_rn(0.0F);
    if (exists && column + j < f.columns) unit.values[j] = f.values[i + j];
  }
  *target = unit;
}

// Of a warp: how its lanes copy slices of a factor, two units each, of which the second is kHalf units behind the first.
constexpr unsigned kHalf = kSliceUnits / 2;
struct SliceLane {
  bool depth_is_rows;
  unsigned line, unit;

  __device__ explicit SliceLane(bool rows)
      : depth_is_rows(rows),
        line(rows ? threadIdx.x % 32 / 4 : threadIdx.x % 32 / 2),
        unit(rows ? threadIdx.x % 4 : threadIdx.x % 2) {}
  __device__ unsigned lines_of_half() const { return depth_is_rows ? 8 : 16; }
  __device__ unsigned place() const { return slice_place(depth_is_rows, line, unit); }
};

// The calling warp's slices of a factor for kStepsAtOnce steps, asynchronously.
template <unsigned kStepDistance, unsigned kUnitsToNextStep>
__device__ inline void copy_slices(const Factor& f, bool depth_is_rows, std::uint32_t first, std::uint32_t k,
                                   Unit* slice) {
  const SliceLane lane(depth_is_rows);
  std::uint32_t row = (depth_is_rows ? k : first) + lane.line;
  std::uint32_t column = (depth_is_rows ? first : k) + lane.unit * kChannelsOfUnit;
  std::uint32_t i = row * f.columns + column;  // a layer has fewer than 2^31 values
  const std::uint32_t half = lane.lines_of_half() * f.columns;
  Unit* target = slice + lane.place();
#pragma unroll 1
  for (unsigned step = 0; step < kStepsAtOnce; ++step) {
    const bool first_exists = row < f.rows;
    const bool second_exists = row + lane.lines_of_half() < f.rows;
    if (f.width == 1) {
      copy_values(f, first_exists, i, column, target);
      copy_values(f, second_exists, i + half, column, target + kHalf);
    } else {
#pragma unroll 1
      for (unsigned j = 0; j < kChannelsOfUnit; j += f.width) {
        const bool exists = column + j < f.columns;
        copy_aligned(f, exists && first_exists, i + j, target->values + j);
        copy_aligned(f, exists && second_exists, i + half + j, target[kHalf].values + j);
      }
    }
    (depth_is_rows ? row : column) += kStepDistance;
    i += depth_is_rows ? kStepDistance * f.columns : kStepDistance;
    target += kUnitsToNextStep;
  }
}

// Puts ones into a column of the slices of a factor whose depth is its rows, each lane where it has copied zeros.
template <unsigned kStepDistance, unsigned kUnitsToNextStep>
__device__ inline void put_ones(const Factor& f, std::uint32_t column, std::uint32_t k, Unit* slice) {
  const SliceLane lane(true);
  if (lane.unit != column / kChannelsOfUnit) return;
  std::uint32_t row = k + lane.line;
  Unit* target = slice + lane.place();
#pragma unroll 1
  for (unsigned step = 0; step < kStepsAtOnce; ++step) {
    for (unsigned half = 0; half < 2; ++half) {
      if (row + half * lane.lines_of_half() < f.rows) put(target[half * kHalf].values, column % kChannelsOfUnit, 1.0F);
    }
    row += kStepDistance;
    target += kUnitsToNextStep;
  }
}

// Of the gradients those whose y is above 0, or NaN, as in relu_gradient().
__device__ inline std::uint32_t passing_pair(std::uint32_t y, std::uint32_t gradients) {
  __nv_bfloat162 pair;
  std::memcpy(&pair, &y, sizeof pair);
  return gradients & ~__hle2_mask(pair, __float2bfloat162_rn(0.0F));
}

// Of a warp: tiles of 16 x 8 values, as in Note [Fragments].
using WarpSums = float[kTileRows / 16][kTileColumns / 8][4];

// The product of a step. `a_place`, `b_place`: of the lane's row of the first matrices.
template <bool kMasked>
__device__ inline void multiply_step(const Unit (&slices)[kFactorsOf<kMasked>][kSliceUnits], bool has_mask,
                                     bool depth_is_rows_of_a, unsigned a_place, bool depth_is_rows_of_b,
                                     unsigned b_place, WarpSums& sums) {
  const auto load = [](const Unit* slice, bool depth_is_rows, unsigned place, unsigned i) {
    return depth_is_rows ? load_transposed(slice + (place ^ 2 * i)) : load_matrices(slice + place + 32 * i);
  };
  Matrices rows[kTileRows / 16];
#pragma unroll
  for (unsigned m = 0; m < kTileRows / 16; ++m) {
    rows[m] = load(slices[0], depth_is_rows_of_a, a_place, m);
  }
  if (kMasked && has_mask) {
#pragma unroll
    for (unsigned m = 0; m < kTileRows / 16; ++m) {
      const Matrices y = load(slices[1], depth_is_rows_of_a, a_place, m);
      for (unsigned j = 0; j < 4; ++j) rows[m].values[j] = passing_pair(y.values[j], rows[m].values[j]);
    }
  }
#pragma unroll
  for (unsigned n = 0; n < kTileColumns / 16; ++n) {
    const Matrices columns = load(slices[kFactorsOf<kMasked> - 1], depth_is_rows_of_b, b_place, n);
#pragma unroll
    for (unsigned m = 0; m < kTileRows / 16; ++m) {
      multiply_add(sums[m][2 * n], rows[m], columns.values[0], columns.values[1]);
      multiply_add(sums[m][2 * n + 1], rows[m], columns.values[2], columns.values[3]);
    }
  }
}

// Leaves the calling warp's sums in shared memory.
template <bool kMasked>
__device__ inline void put_sums(const WarpSums& sums, WarpRoom<kMasked>& room) {
  const unsigned lane = threadIdx.x % 32;
#pragma unroll
  for (unsigned m = 0; m < kTileRows / 16; ++m) {
#pragma unroll
    for (unsigned n = 0; n < kTileColumns / 8; ++n) {
      for (unsigned half = 0; half < 2; ++half) {
        float* place = &room.sums[16 * m + lane / 4 + 8 * half][8 * n + lane % 4 * 2];
        *reinterpret_cast<float2*>(place) = {sums[m][n][2 * half], sums[m][n][2 * half + 1]};
      }
    }
  }
}

// A tile of a product.
struct TileProduct {
  const Factor* factors;  // kFactorsOf of them, but
  unsigned second;        // the index of the last one is this
  bool depth_is_rows_of_a, depth_is_rows_of_b;
  std::uint32_t first_row, first_column, depth;
};

// The block's tile of the product, see Note [Tiles of a product]. kWarpDistance and kStepDistance: of the depths that warps
// take, and of a warp's steps.
template <bool kMasked, unsigned kWarpDistance, unsigned kStepDistance>
__device__ inline void multiply_tile(const TileProduct& p, Rooms<kMasked>& rooms) {
  constexpr unsigned kFactors = kFactorsOf<kMasked>;
  WarpRoom<kMasked>& room = rooms[threadIdx.x / 32];
  const unsigned lane = threadIdx.x % 32;
  const auto place = [lane](bool depth_is_rows, bool swapped) {
    return swapped ? slice_place(depth_is_rows, lane % 8 + lane / 16 * 8, lane / 8 % 2)
                   : slice_place(depth_is_rows, lane % 16, lane / 16);
  };
  const unsigned a_place = place(p.depth_is_rows_of_a, p.depth_is_rows_of_a);
  const unsigned b_place = place(p.depth_is_rows_of_b, !p.depth_is_rows_of_b);
  const std::uint32_t ones_column =
      kMasked && p.factors[p.second].ones ? p.factors[p.second].columns - p.first_column : kTileColumns;
  WarpSums sums = {};
#pragma unroll 1
  for (std::uint32_t k = threadIdx.x / 32 * kWarpDistance; k < p.depth; k += kRoundDepth) {
#pragma unroll 1
    for (unsigned i = 0; i < kFactors; ++i) {
      const bool last = i == kFactors - 1;
      const Factor f = p.factors[last ? p.second : i];
      if (f.values == nullptr) continue;
      copy_slices<kStepDistance, kFactors * kSliceUnits>(f, last ? p.depth_is_rows_of_b : p.depth_is_rows_of_a,
                                                         last ? p.first_column : p.first_row, k, room.slices[0][i]);
    }
    wait_for_copies();
    if (ones_column < kTileColumns) {
      put_ones<kStepDistance, kFactors * kSliceUnits>(p.factors[p.second], ones_column, k,
                                                      room.slices[0][kFactors - 1]);
    }
    converge();
#pragma unroll 1
    for (unsigned step = 0; step < kStepsAtOnce && k + step * kStepDistance < p.depth; ++step) {
      multiply_step<kMasked>(room.slices[step], kMasked && p.factors[1].values != nullptr, p.depth_is_rows_of_a,
                             a_place, p.depth_is_rows_of_b, b_place, sums);
    }
    converge();
  }
  put_sums(sums, room);
  __syncthreads();
}

// Of a tile a thread has two adjacent columns of some rows.
constexpr unsigned kPairs = kTileColumns / 2;
__device__ inline unsigned column_of_pairs() { return threadIdx.x % kPairs * 2; }

// Calls f(row, first, second) for a thread's pairs in the tile. The sums of the warps are added in order.
template <bool kMasked, class F>
__device__ inline void each_pair(const Rooms<kMasked>& rooms, F f) {
#pragma unroll 1
  for (unsigned row = threadIdx.x / kPairs; row < kTileRows; row += kBlockThreads / kPairs) {
    float first = 0.0F;
    float second = 0.0F;
#pragma unroll
    for (unsigned warp = 0; warp < kWarps; ++warp) {
      const float2 some = *reinterpret_cast<const float2*>(&rooms[warp].sums[row][column_of_pairs()]);
      first += some.x;
      second += some.y;
    }
    f(row, first, second);
  }
}

// --- forward

struct Forward {
  Factor factors[2];  // x, weights
  const float* bias;  // null: 0
  __nv_bfloat16* y;
  bool relu;

  __device__ float bias_of(std::uint32_t output) const {
    return bias == nullptr || output >= factors[1].rows ? 0.0F : bias[output];
  }
};

// Calls use(row in the tile, first, second) for the thread's pairs of results too.
template <class Use>
__device__ inline void compute_outputs(const Forward& p, Rooms<false>& rooms, Use use) {
  const std::uint32_t samples = p.factors[0].rows;
  const std::uint32_t outputs = p.factors[1].rows;
  const std::uint32_t first_row = blockIdx.x * kTileRows;
  const std::uint32_t output = blockIdx.y * kTileColumns + column_of_pairs();
  // Loaded in advance.
  const float first_bias = p.bias_of(output);
  const float second_bias = p.bias_of(output + 1);
  multiply_tile<false, 2 * kStepDepth, kStepDepth>({.factors = p.factors,
                                                    .second = 1,
                                                    .depth_is_rows_of_a = false,
                                                    .depth_is_rows_of_b = false,
                                                    .first_row = first_row,
                                                    .first_column = blockIdx.y * kTileColumns,
                                                    .depth = p.factors[0].columns},
                                                   rooms);
  each_pair<false>(rooms, [&](unsigned row, float first, float second) {
    first += first_bias;
    second += second_bias;
    if (p.relu) {
      first = relu(first);
      second = relu(second);
    }
    use(row, first, second);
    if (first_row + row >= samples || output >= outputs) return;
    put_pair(p.y, first_row + row, output, outputs, first, second);
  });
}

// Block (samples, outputs).
__global__ void __launch_bounds__(kBlockThreads, 2)
    linear_forward_kernel(const PreviousKernel previous, const __grid_constant__ Forward p) {
  __shared__ Rooms<false> rooms;
  previous.wait();
  compute_outputs(p, rooms, [](unsigned, float, float) {});
}

__device__ std::uint32_t loss_ticket;

// Block (samples): it has all logits of its samples, in the order in which a separate kernel would read them.
__global__ void __launch_bounds__(kBlockThreads, 2)
    linear_loss_kernel(const PreviousKernel previous, const __grid_constant__ Forward p, const LossInputs in,
                       __nv_bfloat16* gradient, double* partial) {
  constexpr unsigned kGroup = kBlockThreads / kTileRows;  // threads of a sample
  __shared__ Rooms<false> rooms;
  __shared__ __nv_bfloat16 logits[kTileRows][kTileColumns];
  __shared__ double tree[2][kBlockThreads];
  const unsigned row = threadIdx.x / kGroup;
  const std::uint32_t sample = blockIdx.x * kTileRows + row;
  previous.wait();
  const TargetLabel target = target_of(in, sample);
  compute_outputs(p, rooms, [&](unsigned tile_row, float first, float second) {
    put_some<2>(logits[tile_row], column_of_pairs(), {first, second});
  });
  __syncthreads();
  const SampleLoss mine =
      sample_loss<kGroup, 1>(in, sample, target, static_cast<const __nv_bfloat16*>(logits[row]),
                             gradient == nullptr ? gradient : gradient + static_cast<std::size_t>(sample) * in.classes);
  double sums[2] = {mine.loss, mine.correct};
  double correct_before = 0;
  // First the sums of the block, then those of all blocks.
#pragma unroll 1
  for (bool of_block = true;; of_block = false) {
    sums_of_block(tree, sums);
    if (!of_block) break;
    if (threadIdx.x < 2) partial[2 * blockIdx.x + threadIdx.x] = threadIdx.x == 0 ? sums[0] : sums[1];
    if (!is_last_block(&loss_ticket, gridDim.x)) return;
    sums[0] = sums[1] = 0;
    correct_before = *in.correct;
#pragma unroll 1
    for (std::uint32_t block = threadIdx.x; block < gridDim.x; block += kBlockThreads) {
      sums[0] += __ldcg(partial + 2 * block);
      sums[1] += __ldcg(partial + 2 * block + 1);
    }
  }
  if (threadIdx.x == 0) {
    *in.loss_sum = sums[0];
    *in.correct = correct_before + sums[1];
  }
}

// --- backward

struct Backward {
  Factor factors[4];  // the gradient before bias and ReLU; with ReLU what it returned; weights, x
  Divisor channels;
  std::uint32_t positions;
  float* weight_gradient;
  float* bias_gradient;       // null: none
  __nv_bfloat16* dx;          // null: none
  std::uint32_t data_blocks;  // those of the input's gradient come first
  Divisor data_columns;       // of blocks
  Divisor weight_columns;

  __device__ const Factor& x() const { return factors[3]; }
};

// Where the gradient of a packed weight belongs in the plain order; that of a bias is behind them.
__device__ inline void put_gradient(const Backward& p, std::uint32_t output, std::uint32_t input, float value) {
  const std::uint32_t inputs = p.x().columns;
  if (input < inputs) {
    const Divided parts = p.channels.divide(input);
    p.weight_gradient[output * inputs + parts.remainder * p.positions + parts.quotient] = value;
  } else if (input == inputs && p.bias_gradient != nullptr) {
    p.bias_gradient[output] = value;
  }
}

// A block has a tile of the input's gradient or one of the weights', by the same code.
__global__ void __launch_bounds__(kBlockThreads, 2)
    linear_backward_kernel(const PreviousKernel previous, const __grid_constant__ Backward p) {
  __shared__ Rooms<true> rooms;
  const bool data = blockIdx.x < p.data_blocks;
  const Divided block = data ? p.data_columns.divide(blockIdx.x) : p.weight_columns.divide(blockIdx.x - p.data_blocks);
  const std::uint32_t first_row = block.quotient * kTileRows;
  const std::uint32_t first_column = block.remainder * kTileColumns;
  const Factor& gradient = p.factors[0];
  previous.wait();
  multiply_tile<true, kStepDepth, kWarps * kStepDepth>({.factors = p.factors,
                                                        .second = data ? 2U : 3U,
                                                        .depth_is_rows_of_a = !data,
                                                        .depth_is_rows_of_b = true,
                                                        .first_row = first_row,
                                                        .first_column = first_column,
                                                        .depth = data ? gradient.columns : gradient.rows},
                                                       rooms);
  const std::uint32_t column = first_column + column_of_pairs();
  each_pair<true>(rooms, [&](unsigned tile_row, float first, float second) {
    const std::uint32_t row = first_row + tile_row;
    if (data) {
      if (row < p.x().rows && column < p.x().columns) put_pair(p.dx, row, column, p.x().columns, first, second);
    } else if (row < gradient.columns) {
      put_gradient(p, row, column, first);
      put_gradient(p, row, column + 1, second);
    }
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
  const Forward forward{{factor_of(a.x, spec.batch, spec.inputs), factor_of(a.packed, spec.outputs, spec.inputs)},
                        a.bias,
                        as<__nv_bfloat16>(a.y),
                        spec.relu};
  if (a.loss == nullptr) {
    launch(stream, blocks, kBlockThreads, linear_forward_kernel, forward);
  } else {
    launch(stream, blocks, kBlockThreads, linear_loss_kernel, forward, loss_inputs(a.loss->spec, a.loss->arguments),
           as<__nv_bfloat16>(a.loss->arguments.gradient.data()), a.partial_loss);
  }
}

void linear_mma_backward(cudaStream_t stream, const LinearSpec& spec, const LinearMmaBackward& a) {
  Backward p{};
  p.factors[0] = factor_of(a.dy, spec.batch, spec.outputs);
  p.factors[1] = factor_of(spec.relu ? a.y : nullptr, spec.batch, spec.outputs);
  p.factors[2] = factor_of(a.packed, spec.outputs, spec.inputs);
  p.factors[3] = factor_of(a.x, spec.batch, spec.inputs);
  p.factors[3].ones = spec.bias;
  p.channels = Divisor(static_cast<std::uint32_t>(spec.inputs / a.positions));
  p.positions = static_cast<std::uint32_t>(a.positions);
  p.weight_gradient = a.weight_gradient;
  p.bias_gradient = a.bias_gradient;
  p.dx = spec.input_gradient ? as<__nv_bfloat16>(a.dx) : nullptr;
  const unsigned data_columns = blocks_over(spec.inputs, kTileColumns);
  const unsigned weight_columns = blocks_over(spec.inputs + (spec.bias ? 1 : 0), kTileColumns);
  p.data_blocks = spec.input_gradient ? data_columns * blocks_over(spec.batch, kTileRows) : 0;
  p.data_columns = Divisor(data_columns);
  p.weight_columns = Divisor(weight_columns);
  launch(stream, p.data_blocks + weight_columns * blocks_over(spec.outputs, kTileRows), kBlockThreads,
         linear_backward_kernel, p);
}

}  // namespace ddp::cuda
