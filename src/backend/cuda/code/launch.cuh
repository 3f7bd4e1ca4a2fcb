// Shared by all kernels: launch configurations, loops over elements, and access to activations as float.
//
//   template <class T>
//   __global__ void relu_kernel(const T* x, T* y, std::size_t count) {
//     for (std::size_t i = first_index(); i < count; i += index_step()) put(y, i, relu(get(x, i)));
//   }
//   with_element(element, [&](auto zero) {
//     using T = decltype(zero);
//     launch(stream, blocks_for(count), kThreads, relu_kernel<T>, as<T>(x), as<T>(y), count);
//   });
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/code/launch_kernel.cuh"
#include "backend/cuda/device/element.h"

namespace ddp::cuda {

inline constexpr unsigned kThreads = 256;
inline unsigned blocks_for(std::size_t count) {
  const std::size_t blocks = (count + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

__device__ inline std::size_t first_index() { return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline std::size_t index_step() { return static_cast<std::size_t>(gridDim.x) * blockDim.x; }

// A bit mixer: the finalizer of MurmurHash3 (Appleby, 2011).
__device__ inline std::uint32_t scattered(std::uint32_t x) {
  x = (x ^ (x >> 16U)) * 0x85EBCA6BU;
  x = (x ^ (x >> 13U)) * 0xC2B2AE35U;
  return x ^ (x >> 16U);
}

__device__ inline float get(const float* p, std::size_t i) { return p[i]; }
__device__ inline float get(const __nv_bfloat16* p, std::size_t i) { return __bfloat162float(p[i]); }
__device__ inline float get(const __half* p, std::size_t i) { return __half2float(p[i]); }
__device__ inline void put(float* p, std::size_t i, float value) { p[i] = value; }
__device__ inline void put(__nv_bfloat16* p, std::size_t i, float value) { p[i] = __float2bfloat16_rn(value); }
__device__ inline void put(__half* p, std::size_t i, float value) { p[i] = __float2half_rn(value); }

template <class T>
const T* as(const void* p) {
  return static_cast<const T*>(p);
}
template <class T>
T* as(void* p) {
  return static_cast<T*>(p);
}

// Calls f with a value of the element's type.
template <class F>
void with_element(Element element, F f) {
  switch (element) {
    case Element::fp32:
      return f(float{});
    case Element::bf16:
      return f(__nv_bfloat16{});
    case Element::fp16:
      return f(__half{});
  }
}

}  // namespace ddp::cuda
