// Loops over flat buffers: sums, checks.
#include "backend/arithmetic.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"

namespace ddp::cuda {
namespace {

__global__ void add_kernel(float* sum, const float* addend, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_step()) sum[i] += addend[i];
}

// One thread: there are only a few sums.
__global__ void check_sums_kernel(const double* sums, std::size_t count, double* broken, double* square_sum) {
  bool found = false;
  for (std::size_t i = 0; i < count; ++i) found = found || is_broken(sums[i]);
  *broken = found ? 1 : 0;
  *square_sum = 0;
}

__global__ void check_values_kernel(const float* values, std::size_t count, double* broken, double* square_sum) {
  bool found = false;
  double squares = 0;
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    found = found || is_broken(values[i]);
    squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  constexpr unsigned kWarp = 32;
  for (unsigned step = kWarp / 2; step > 0; step /= 2) squares += __shfl_xor_sync(0xFFFFFFFFU, squares, step);
  if (threadIdx.x % kWarp == 0) atomicAdd(square_sum, squares);
  // All threads write the same value; atomically, to avoid a data race.
  if (found) atomicExch(reinterpret_cast<unsigned long long*>(broken), __double_as_longlong(1.0));
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

}  // namespace

void add(cudaStream_t stream, float* sum, const float* addend, std::size_t count) {
  if (count == 0) return;
  launch(stream, blocks_for(count), kThreads, add_kernel, sum, addend, count);
}

void find_broken(cudaStream_t stream, const float* values, std::size_t count, const double* sums, std::size_t sum_count,
                 double* broken, double* square_sum) {
  launch(stream, 1, 1, check_sums_kernel, sums, sum_count, broken, square_sum);
  if (count == 0) return;
  launch(stream, blocks_for(count), kThreads, check_values_kernel, values, count, broken, square_sum);
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

}  // namespace ddp::cuda
