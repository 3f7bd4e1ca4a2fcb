// Kernels run as a GPU runs them, on the host: blocks one after the other, the threads of a block as fibers that stop
// at barriers and exchanges, in a random order, so that a barrier that is missing shows.
//
//   run_grid(dim3(4), dim3(256), [&] { kernel(x, y, count); });
//
// What a kernel may use of CUDA is what is declared here under CUDA's names. A barrier that not all threads of a block
// reach, or an exchange without all threads of a warp, ends the program with a message.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

namespace ddp::stand_in {

void run_grid(dim3 blocks, dim3 threads, const std::function<void()>& thread);

void block_barrier();
// What the thread `partner` of this warp (0 to 31) hands in; all threads of the warp call it together.
std::uint64_t exchange(std::uint64_t value, unsigned partner);
unsigned lane();

// Calls `read` with what each thread of this warp points to; it stays as it is until all have read it. All threads of
// the warp call it together.
using Warp = std::array<const void*, 32>;
void with_warp(const void* mine, const std::function<void(const Warp& all)>& read);

template <class T>
T exchange_with(T value, unsigned partner) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(bits, partner);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace ddp::stand_in

// Of the thread that runs.
inline thread_local uint3 threadIdx;
inline thread_local uint3 blockIdx;
inline thread_local dim3 blockDim;
inline thread_local dim3 gridDim;

// Memory of a block is the same for all its threads, and blocks come one after the other.
#undef __shared__
#define __shared__ static
#define __launch_bounds__(...)

inline void __syncthreads() { ddp::stand_in::block_barrier(); }
template <class T>
T __shfl_xor_sync(unsigned /*mask*/, T value, unsigned step) {
  return ddp::stand_in::exchange_with(value, ddp::stand_in::lane() ^ step);
}

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline unsigned long long __double_as_longlong(double value) { return std::bit_cast<unsigned long long>(value); }
template <class T>
T atomicExch(T* place, T value) {
  return std::exchange(*place, value);
}
inline double atomicAdd(double* place, double value) { return std::exchange(*place, *place + value); }
inline unsigned atomicMax(unsigned* place, unsigned value) {
  const unsigned before = *place;
  if (value > before) *place = value;
  return before;
}
