// See linear_mma.h.
#include "backend/cuda/code/divisor.cuh"
#include "backend/cuda/code/last_block.cuh"
#include "backend/cuda/ends/loss.cuh"
#include "backend/cuda/linear/linear_mma.h"
#include "backend/cuda/linear/linear_slices.cuh"

namespace ddp::cuda {
namespace {

constexpr unsigned kBlockThreads = 256;
constexpr unsigned kWarps = kBlockThreads / 32;
// From row to row of a warp's sums, so that the rows of a half warp are in different banks.
constexpr unsigned kSumsPitch = kTileColumns + 8;

// Larger products are left to libraries.
constexpr double kMostMultiplyAdds = 1 << 30U;
constexpr double kSmallMultiplyAdds = 1 << 27U;

// Memory of a warp: slices of its factors, and in the end its sums.
template <class T, bool kMasked>
union WarpRoom {
  typename Slices<T>::Vector slices[Slices<T>::kAtOnce][kFactorsOf<kMasked>][Slices<T>::kVectors];
  float sums[kTileRows][kSumsPitch];
};
template <class T, bool kMasked>
using Rooms = WarpRoom<T, kMasked>[kWarps];

// Leaves the calling warp's sums in shared memory.
template <class T, bool kMasked>
__device__ inline void put_sums(const WarpSums& sums, WarpRoom<T, kMasked>& room) {
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
template <class T>
struct TileProduct {
  const Factor<T>* factors;  // kFactorsOf of them, but
  unsigned second;           // the index of the last one is this
  bool depth_is_rows_of_a, depth_is_rows_of_b;
  std::uint32_t first_row, first_column, depth;
  std::uint32_t parts;  // see Note [Parts] of parts.h
};

// The block's tile of the product, see Note [Tiles of a product]. kWarpDistance and kStepDistance: of the depths that warps
// take, and of a warp's steps.
template <class T, bool kMasked, unsigned kWarpDistance, unsigned kStepDistance>
__device__ inline void multiply_tile(const TileProduct<T>& p, Rooms<T, kMasked>& rooms) {
  using S = Slices<T>;
  constexpr unsigned kFactors = kFactorsOf<kMasked>;
  constexpr std::uint32_t kRoundDepth = kWarps * S::kAtOnce * kStepDepth;
  WarpRoom<T, kMasked>& room = rooms[threadIdx.x / 32];
  const std::uint32_t ones_column =
      kMasked && p.factors[p.second].ones ? p.factors[p.second].columns - p.first_column : kTileColumns;
  WarpSums sums = {};
#pragma unroll 1
  for (std::uint32_t k = threadIdx.x / 32 * kWarpDistance; k < p.depth; k += kRoundDepth) {
#pragma unroll 1
    for (unsigned i = 0; i < kFactors; ++i) {
      const bool last = i == kFactors - 1;
      const Factor<T> f = p.factors[last ? p.second : i];
      if (f.values == nullptr) continue;
      S::template copy<kStepDistance, kFactors * S::kVectors>(f, last ? p.depth_is_rows_of_b : p.depth_is_rows_of_a,
                                                              last ? p.first_column : p.first_row, k,
                                                              room.slices[0][i]);
    }
    wait_for_copies();
    if (ones_column < kTileColumns) {
      S::template put_ones<kStepDistance, kFactors * S::kVectors>(p.factors[p.second], ones_column, k,
                                                                  room.slices[0][kFactors - 1]);
    }
    converge();
#pragma unroll 1
    for (unsigned step = 0; step < S::kAtOnce && k + step * kStepDistance < p.depth; ++step) {
      S::template multiply<kMasked>(room.slices[step], p.parts, kMasked && p.factors[1].values != nullptr,
                                    p.depth_is_rows_of_a, p.depth_is_rows_of_b, sums);
    }
    converge();
  }
  put_sums(sums, room);
  __syncthreads();
}

// A thread has two adjacent columns of some rows of a tile.
constexpr unsigned kPairs = kTileColumns / 2;
__device__ inline unsigned column_of_pairs() { return threadIdx.x % kPairs * 2; }

// Calls f(row, first, second) for a thread's pairs in the tile. The sums of the warps are added in order.
template <class T, bool kMasked, class F>
__device__ inline void each_pair(const Rooms<T, kMasked>& rooms, F f) {
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

template <class T>
struct Forward {
  Factor<T> factors[2];  // x, weights
  const float* bias;     // null: 0
  T* y;
  std::uint32_t parts;
  bool relu;

  __device__ float bias_of(std::uint32_t output) const {
    return bias == nullptr || output >= factors[1].rows ? 0.0F : bias[output];
  }
};

// Calls use(row in the tile, first, second) for the thread's pairs of results too.
template <class T, class Use>
__device__ inline void compute_outputs(const Forward<T>& p, Rooms<T, false>& rooms, Use use) {
  const std::uint32_t samples = p.factors[0].rows;
  const std::uint32_t outputs = p.factors[1].rows;
  const std::uint32_t first_row = blockIdx.x * kTileRows;
  const std::uint32_t output = blockIdx.y * kTileColumns + column_of_pairs();
  // Loaded in advance.
  const float first_bias = p.bias_of(output);
  const float second_bias = p.bias_of(output + 1);
  multiply_tile<T, false, Slices<T>::kAtOnce * kStepDepth, kStepDepth>({.factors = p.factors,
                                                                        .second = 1,
                                                                        .depth_is_rows_of_a = false,
                                                                        .depth_is_rows_of_b = false,
                                                                        .first_row = first_row,
                                                                        .first_column = blockIdx.y * kTileColumns,
                                                                        .depth = p.factors[0].columns,
                                                                        .parts = p.parts},
                                                                       rooms);
  each_pair<T, false>(rooms, [&](unsigned row, float first, float second) {
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
template <class T>
__global__ void __launch_bounds__(kBlockThreads, 2)
    linear_forward_kernel(const PreviousKernel previous, const __grid_constant__ Forward<T> p) {
  __shared__ Rooms<T, false> rooms;
  previous.wait();
  compute_outputs(p, rooms, [](unsigned, float, float) {});
}

__device__ std::uint32_t loss_ticket;

// Block (samples): it has all logits of its samples, in the order in which a separate kernel would read them.
template <class T>
__global__ void __launch_bounds__(kBlockThreads, 2)
    linear_loss_kernel(const PreviousKernel previous, const __grid_constant__ Forward<T> p, const LossInputs in,
                       T* gradient, double* partial) {
  constexpr unsigned kGroup = kBlockThreads / kTileRows;  // threads of a sample
  __shared__ Rooms<T, false> rooms;
  __shared__ T logits[kTileRows][kTileColumns];
  const unsigned row = threadIdx.x / kGroup;
  const std::uint32_t sample = blockIdx.x * kTileRows + row;
  previous.wait();
  const TargetLabel target = target_of(in, sample);
  compute_outputs(p, rooms, [&](unsigned tile_row, float first, float second) {
    put_some<2>(logits[tile_row], column_of_pairs(), {first, second});
  });
  __syncthreads();
  // In the room of the products, which are read no more.
  using Tree = double[2][kBlockThreads];
  static_assert(sizeof(rooms) >= sizeof(Tree) && alignof(WarpRoom<T, false>) >= alignof(double));
  auto& tree = reinterpret_cast<Tree&>(rooms);
  const SampleLoss mine =
      sample_loss<kGroup, 1>(in, sample, target, static_cast<const T*>(logits[row]),
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

template <class T>
struct Backward {
  Factor<T> factors[4];  // the gradient before bias and ReLU; with ReLU what it returned; weights, x
  Divisor channels;
  std::uint32_t positions;
  float* weight_gradient;
  float* bias_gradient;  // null: none
  T* dx;                 // null: none
  std::uint32_t parts;
  std::uint32_t data_blocks;  // those of the input's gradient come first
  Divisor data_columns;       // of blocks
  Divisor weight_columns;

  __device__ const Factor<T>& x() const { return factors[3]; }
};

// Where the gradient of a packed weight belongs in the plain order; that of a bias is behind them.
template <class T>
__device__ inline void put_gradient(const Backward<T>& p, std::uint32_t output, std::uint32_t input, float value) {
  const std::uint32_t inputs = p.x().columns;
  if (input < inputs) {
    const Divided parts = p.channels.divide(input);
    p.weight_gradient[output * inputs + parts.remainder * p.positions + parts.quotient] = value;
  } else if (input == inputs && p.bias_gradient != nullptr) {
    p.bias_gradient[output] = value;
  }
}

// A block has a tile of the input's gradient or one of the weights', by the same code.
template <class T>
__global__ void __launch_bounds__(kBlockThreads, 2)
    linear_backward_kernel(const PreviousKernel previous, const __grid_constant__ Backward<T> p) {
  __shared__ Rooms<T, true> rooms;
  const bool data = blockIdx.x < p.data_blocks;
  const Divided block = data ? p.data_columns.divide(blockIdx.x) : p.weight_columns.divide(blockIdx.x - p.data_blocks);
  const std::uint32_t first_row = block.quotient * kTileRows;
  const std::uint32_t first_column = block.remainder * kTileColumns;
  const Factor<T>& gradient = p.factors[0];
  previous.wait();
  multiply_tile<T, true, kStepDepth, kWarps * kStepDepth>({.factors = p.factors,
                                                           .second = data ? 2U : 3U,
                                                           .depth_is_rows_of_a = !data,
                                                           .depth_is_rows_of_b = true,
                                                           .first_row = first_row,
                                                           .first_column = first_column,
                                                           .depth = data ? gradient.columns : gradient.rows,
                                                           .parts = p.parts},
                                                          rooms);
  const std::uint32_t column = first_column + column_of_pairs();
  each_pair<T, true>(rooms, [&](unsigned tile_row, float first, float second) {
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

namespace {

template <class T>
void forward(cudaStream_t stream, const LinearSpec& spec, std::uint32_t parts, const LinearMmaForward& a) {
  const dim3 blocks(blocks_over(spec.batch, kTileRows), blocks_over(spec.outputs, kTileColumns));
  if (blocks.x == 0) return;
  const Forward<T> p{{factor_of<T>(a.x, spec.batch, spec.inputs), factor_of<T>(a.packed, spec.outputs, spec.inputs)},
                     a.bias,
                     as<T>(a.y),
                     parts,
                     spec.relu};
  if (a.loss == nullptr) {
    launch(stream, blocks, kBlockThreads, linear_forward_kernel<T>, p);
  } else {
    launch(stream, blocks, kBlockThreads, linear_loss_kernel<T>, p, loss_inputs(a.loss->loss->spec, *a.loss),
           as<T>(a.loss->loss->gradient.data()), a.partial_loss);
  }
}

template <class T>
void backward(cudaStream_t stream, const LinearSpec& spec, std::uint32_t parts, const LinearMmaBackward& a) {
  Backward<T> p{};
  p.factors[0] = factor_of<T>(a.dy, spec.batch, spec.outputs);
  p.factors[1] = factor_of<T>(spec.relu ? a.y : nullptr, spec.batch, spec.outputs);
  p.factors[2] = factor_of<T>(a.packed, spec.outputs, spec.inputs);
  p.factors[3] = factor_of<T>(a.x, spec.batch, spec.inputs);
  p.factors[3].ones = spec.bias;
  p.channels = Divisor(static_cast<std::uint32_t>(spec.inputs / a.positions));
  p.positions = static_cast<std::uint32_t>(a.positions);
  p.parts = parts;
  p.weight_gradient = a.weight_gradient;
  p.bias_gradient = a.bias_gradient;
  p.dx = spec.input_gradient ? as<T>(a.dx) : nullptr;
  const unsigned data_columns = blocks_over(spec.inputs, kTileColumns);
  const unsigned weight_columns = blocks_over(spec.inputs + (spec.bias ? 1 : 0), kTileColumns);
  p.data_blocks = spec.input_gradient ? data_columns * blocks_over(spec.batch, kTileRows) : 0;
  p.data_columns = Divisor(data_columns);
  p.weight_columns = Divisor(weight_columns);
  launch(stream, p.data_blocks + weight_columns * blocks_over(spec.outputs, kTileRows), kBlockThreads,
         linear_backward_kernel<T>, p);
}

}  // namespace

void linear_mma_forward(cudaStream_t stream, const LinearSpec& spec, std::uint32_t parts, const LinearMmaForward& a) {
  parts == 1 ? forward<__nv_bfloat16>(stream, spec, parts, a) : forward<float>(stream, spec, parts, a);
}

void linear_mma_backward(cudaStream_t stream, const LinearSpec& spec, std::uint32_t parts, const LinearMmaBackward& a) {
  parts == 1 ? backward<__nv_bfloat16>(stream, spec, parts, a) : backward<float>(stream, spec, parts, a);
}

}  // namespace ddp::cuda
