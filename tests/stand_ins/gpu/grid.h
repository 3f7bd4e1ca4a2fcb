// Executes kernels on the host: blocks one after the other in random order, the threads of a block as fibers that switch at
// barriers and exchanges, in random order too, so that tests detect missing barriers and what depends on other blocks.
//
//   run_grid(dim3(4), dim3(256), [&] { kernel(x, y, count); });
//
// Kernels can use only those CUDA names that are declared here. A barrier that some threads of a block do not reach, or
// an exchange that some threads of a warp do not reach, aborts the program with a message.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

namespace ddp::stand_in {

void run_grid(dim3 blocks, dim3 threads, const std::function<void()>& thread);

void block_barrier();
unsigned lane();

// Copies of what the threads of a warp have handed in.
class Warp {
 public:
  template <class T>
  const T& of(unsigned lane) const {
    return *static_cast<const T*>(static_cast<const void*>(places_.at(lane).bytes));
  }

 private:
  friend class Block;
  struct alignas(16) Place {
    std::byte bytes[32];
  };
  std::array<Place, 32> places_;
};
const Warp& hand_in(const void* data, std::size_t bytes);

// Hands in a value and returns those of all threads of the warp, which stay until this thread hands in the next one. All
// threads of the warp must call it.
template <class T>
const Warp& hand_in(const T& value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 32 && alignof(T) <= 16);
  return hand_in(&value, sizeof(T));
}

// Returns the value passed by thread `partner` (0 to 31) of this warp; all threads of the warp must call it.
template <class T>
T exchange_with(const T& value, unsigned partner) {
  return hand_in(value).template of<T>(partner);
}

}  // namespace ddp::stand_in

// Built-in variables of the current thread.
inline thread_local uint3 threadIdx;
inline thread_local uint3 blockIdx;
inline thread_local dim3 blockDim;
inline thread_local dim3 gridDim;

// Static variables can serve as shared memory, because blocks run one after the other.
#undef __shared__
#define __shared__ static
#define __launch_bounds__(...)

inline void __syncthreads() { ddp::stand_in::block_barrier(); }
template <class T>
T __shfl_xor_sync(unsigned /*mask*/, T value, unsigned step) {
  return ddp::stand_in::exchange_with(value, ddp::stand_in::lane() ^ step);
}

inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __uint_as_float(unsigned value) { return std::bit_cast<float>(value); }
inline unsigned long long __double_as_longlong(double value) { return std::bit_cast<unsigned long long>(value); }
template <class T>
T atomicExch(T* place, T value) {
  return std::exchange(*place, value);
}
// Counts up to `most`, then starts again at zero.
inline unsigned atomicInc(unsigned* place, unsigned most) {
  const unsigned before = *place;
  *place = before >= most ? 0 : before + 1;
  return before;
}
inline void __threadfence() {}
template <class T>
T __ldcg(const T* place) {
  return *place;
}
template <class T>
void __stcs(T* place, const T& value) {
  *place = value;
}
inline double atomicAdd(double* place, double value) { return std::exchange(*place, *place + value); }
inline unsigned atomicAdd(unsigned* place, unsigned value) { return std::exchange(*place, *place + value); }
inline unsigned atomicMax(unsigned* place, unsigned value) {
  const unsigned before = *place;
  if (value > before) *place = value;
  return before;
}
