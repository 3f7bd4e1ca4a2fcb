// Loops over flat buffers: sums, checks.
#include <algorithm>

#include "backend/arithmetic.h"
#include "backend/cuda/code/block_sum.cuh"
#include "backend/cuda/code/copy_row.cuh"
#include "backend/cuda/code/last_block.cuh"
#include "backend/cuda/update/update.h"
#include "backend/update/flat_math.h"

namespace ddp::cuda {
namespace {

__global__ void add_floats_kernel(float* sum, const float* addend, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_step()) sum[i] += addend[i];
}

__global__ void copy_floats_kernel(float* to, const float* from, std::size_t count, const double* skip) {
  if (skip != nullptr && *skip != 0) return;
  for (std::size_t i = first_index(); i < count; i += index_step()) to[i] = from[i];
}

__global__ void pull_kernel(float* slow, float* fast, std::size_t count, float rest, const double* skip) {
  if (skip != nullptr && *skip != 0) return;
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    slow[i] += rest * (fast[i] - slow[i]);
    fast[i] = slow[i];
  }
}

__device__ std::uint32_t row_ticket;

// The last block moves the cursor, which all others have read by then.
__global__ void copy_row_kernel(const PreviousKernel previous, const __grid_constant__ Columns columns,
                                TableCursor* cursor) {
  previous.wait();
  columns.copy(row_at(cursor), blockIdx.x, gridDim.x);
  if (cursor == nullptr || !is_last_block(&row_ticket, gridDim.x) || threadIdx.x != 0) return;
  cursor->advance();
}

// The calling thread's share of the sums, of which every step-th is its own.
__device__ void find_nonfinite_from(const double* sums, std::size_t first, std::size_t step, std::size_t count,
                                    double* broken) {
  bool found = false;
  for (std::size_t i = first; i < count; i += step) found = found || is_broken(__ldcg(sums + i));
  // All threads write the same value; atomically, to avoid a data race.
  if (found) atomicExch(reinterpret_cast<unsigned long long*>(broken), __double_as_longlong(1.0));
}

__global__ void find_nonfinite_kernel(const double* sums, std::size_t count, double* broken) {
  find_nonfinite_from(sums, first_index(), index_step(), count, broken);
}

// The blocks of a part take turns of four values for each thread, whose sums are added by a tree; the last of them adds
// theirs, in order. The last block of all checks the sums.
constexpr unsigned kSquareThreads = 512;
constexpr unsigned kMostBlocksOfPart = 8;
constexpr unsigned kSquareParts = static_cast<unsigned>(kSquareSums);
__device__ double squares_of_blocks[kSquareParts * kMostBlocksOfPart];
__device__ std::uint32_t part_tickets[kSquareParts];
__device__ std::uint32_t square_ticket;

__device__ inline double square(float value) { return static_cast<double>(value) * static_cast<double>(value); }

// Block (number in the part, part). Its code is short for networks that are so small that loading it takes most of the time.
__global__ void __launch_bounds__(kSquareThreads)
    square_sums_kernel(const PreviousKernel previous, const float* values, std::size_t count, std::size_t part,
                       double* sums, const double* checked, std::size_t checked_count, double* broken) {
  __shared__ double tree[kSquareThreads];
  constexpr unsigned kAtOnce = 4;
  const unsigned blocks_of_part = gridDim.x;
  const std::size_t step = std::size_t{blocks_of_part} * kSquareThreads * 4;
  const unsigned number = blockIdx.y;
  const std::size_t end = (number + 1) * part < count ? (number + 1) * part : count;
  const bool aligned = reinterpret_cast<std::uintptr_t>(values) % 16 == 0;
  double sum = 0;
  std::size_t i = number * part + (blockIdx.x * kSquareThreads + threadIdx.x) * 4;
  std::size_t rest = i;
  previous.wait();
  for (; aligned && i < end; i += kAtOnce * step) {
    rest = i;
    Pack<float, 4> loaded[kAtOnce];
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k) loaded[k] = get_pack_if<4>(i + k * step + 4 <= end, values, i + k * step);
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k) {
      if (i + k * step >= end) break;
      for (const float value : loaded[k].values) sum += square(value);
    }
  }
  // Four values that are not aligned, or of which some are beyond the end.
#pragma unroll 1
  for (i = rest; (!aligned || end % 4 != 0) && i < end; i += step) {
    if (aligned && i + 4 <= end) continue;
    float some[4] = {};
    for (unsigned j = 0; j < 4; ++j) some[j] = i + j < end ? values[i + j] : 0.0F;
    for (const float value : some) sum += square(value);
  }
  sum = sum_of_block(tree, sum);
  if (blocks_of_part > 1) {
    if (threadIdx.x == 0) squares_of_blocks[number * blocks_of_part + blockIdx.x] = sum;
    if (!is_last_block(part_tickets + number, blocks_of_part)) return;
    sum = 0;
    for (unsigned b = 0; threadIdx.x == 0 && b < blocks_of_part; ++b)
      sum += __ldcg(squares_of_blocks + number * blocks_of_part + b);
  }
  if (threadIdx.x == 0) sums[number] = sum;
  if (broken == nullptr || !is_last_block(&square_ticket, kSquareParts)) return;
  find_nonfinite_from(checked, threadIdx.x, blockDim.x, checked_count, broken);
}

template <class T>
__global__ void fill_random_kernel(T* data, std::size_t count, std::uint32_t seed) {
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    const std::uint32_t hash = scattered(static_cast<std::uint32_t>(i) + scattered(seed));
    put(data, i, static_cast<float>(hash >> 8U) / 16777216.0F - 0.5F);
  }
}

// Non-negative floats have the same order as their bits.
__device__ void raise_to(float* maximum, float value) {
  atomicMax(reinterpret_cast<unsigned*>(maximum), __float_as_uint(value));
}

template <class T>
__global__ void compare_kernel(const T* a, const T* b, std::size_t count, float* result) {
  float difference = 0.0F;
  float size = 0.0F;
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    const float apart = std::fabs(get(a, i) - get(b, i));
    difference = larger(difference, is_broken(apart) ? -below_all() : apart);
    size = larger(size, std::fabs(get(a, i)));
  }
  raise_to(result, difference);
  raise_to(result + 1, size);
}

template <class T>
__global__ void count_apart_kernel(const T* a, const T* b, std::size_t count, float limit, unsigned* counts) {
  unsigned apart = 0;
  unsigned broken = 0;
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    const float difference = std::fabs(get(a, i) - get(b, i));
    apart += difference > limit ? 1U : 0U;
    broken += is_broken(difference) ? 1U : 0U;
  }
  if (apart > 0) atomicAdd(counts, apart);
  if (broken > 0) atomicAdd(counts + 1, broken);
}

}  // namespace

void add(cudaStream_t stream, float* sum, const float* addend, std::size_t count) {
  if (count == 0) return;
  launch(stream, blocks_for(count), kThreads, add_floats_kernel, sum, addend, count);
}

void copy(cudaStream_t stream, float* to, const float* from, std::size_t count, const double* skip) {
  if (count == 0) return;
  launch(stream, blocks_for(count), kThreads, copy_floats_kernel, to, from, count, skip);
}

void pull(cudaStream_t stream, float* slow, float* fast, std::size_t count, float rest, const double* skip) {
  if (count == 0) return;
  launch(stream, blocks_for(count), kThreads, pull_kernel, slow, fast, count, rest, skip);
}

void copy_row(cudaStream_t stream, std::span<const TableColumn> columns, TableCursor* cursor) {
  const Columns all(columns);
  launch(stream, std::max(1U, all.blocks()), kThreads, copy_row_kernel, all, cursor);
}

void find_nonfinite(cudaStream_t stream, std::span<const double> sums, double* broken) {
  if (sums.empty()) return;
  launch(stream, blocks_for(sums.size()), kThreads, find_nonfinite_kernel, sums.data(), sums.size(), broken);
}

void square_sums(cudaStream_t stream, const float* values, std::size_t count, double* sums,
                 const NonfiniteCheck& check) {
  // One block for a part with no more values than a block reads at once, which needs no sum over blocks.
  const std::size_t part = (count + 4 * kSquareParts - 1) / (4 * kSquareParts) * 4;
  const unsigned blocks_of_part = part <= kSquareThreads * 4 ? 1 : kMostBlocksOfPart;
  launch(stream, dim3(blocks_of_part, kSquareParts), kSquareThreads, square_sums_kernel, values, count, part, sums,
         check.sums.data(), check.sums.size(), check.broken);
}

void fill_random(cudaStream_t stream, Element element, void* data, std::size_t count, std::uint32_t seed) {
  if (count == 0) return;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(count), kThreads, fill_random_kernel<T>, as<T>(data), count, seed);
  });
}

void compare(cudaStream_t stream, Element element, const void* a, const void* b, std::size_t count, float* result) {
  DDP_CUDA(cudaMemsetAsync(result, 0, 2 * sizeof(float), stream));
  if (count == 0) return;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(count), kThreads, compare_kernel<T>, as<T>(a), as<T>(b), count, result);
  });
}

void count_apart(cudaStream_t stream, Element element, const void* a, const void* b, std::size_t count, float limit,
                 unsigned* counts) {
  DDP_CUDA(cudaMemsetAsync(counts, 0, 2 * sizeof(unsigned), stream));
  if (count == 0) return;
  with_element(element, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(count), kThreads, count_apart_kernel<T>, as<T>(a), as<T>(b), count, limit, counts);
  });
}

}  // namespace ddp::cuda
