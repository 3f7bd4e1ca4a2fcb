// Several neighbouring elements at once, as float: memory is read and written 16 bytes at a time where there is room.
//
//   template <class T>
//   __global__ void relu_kernel(const T* x, T* y, std::size_t count) {
//     constexpr unsigned kWidth = kVector<T>;
//     for (std::size_t i = first_index() * kWidth; i < count; i += index_step() * kWidth) {
//       float values[kWidth];
//       get_some(x, i, count, values);
//       for (float& value : values) value = relu(value);
//       put_some(y, i, count, values);
//     }
//   }
#pragma once

#include "backend/cuda/launch.cuh"

namespace ddp::cuda {

// Elements of 16 bytes.
template <class T>
inline constexpr unsigned kVector = kAlignment / sizeof(T);

// What one access moves. Aligned to 16 bytes at most, as memory is.
template <class T, unsigned kWidth>
struct alignas(sizeof(T) * kWidth < kAlignment ? sizeof(T) * kWidth : kAlignment) Pack {
  T values[kWidth];
};

// Elements i to i + kWidth - 1, where i is a multiple of kWidth; and what is in them.
template <unsigned kWidth, class T>
__device__ inline Pack<T, kWidth> get_pack(const T* p, std::size_t i) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(p + i);
}
template <unsigned kWidth, class T>
__device__ inline void unpack(const Pack<T, kWidth>& pack, float (&values)[kWidth]) {
  for (unsigned j = 0; j < kWidth; ++j) values[j] = get(pack.values, j);
}

template <unsigned kWidth, class T>
__device__ inline void get_some(const T* p, std::size_t i, float (&values)[kWidth]) {
  unpack(get_pack<kWidth>(p, i), values);
}
template <unsigned kWidth, class T>
__device__ inline void put_some(T* p, std::size_t i, const float (&values)[kWidth]) {
  Pack<T, kWidth> pack;
  for (unsigned j = 0; j < kWidth; ++j) put(pack.values, j, values[j]);
  *reinterpret_cast<Pack<T, kWidth>*>(p + i) = pack;
}

// Those of them that are below `count`; the others are read as 0.
template <unsigned kWidth, class T>
__device__ inline void get_some(const T* p, std::size_t i, std::size_t count, float (&values)[kWidth]) {
  if (i + kWidth <= count) {
    get_some(p, i, values);
  } else {
    for (unsigned j = 0; j < kWidth; ++j) values[j] = i + j < count ? get(p, i + j) : 0.0F;
  }
}
template <unsigned kWidth, class T>
__device__ inline void put_some(T* p, std::size_t i, std::size_t count, const float (&values)[kWidth]) {
  if (i + kWidth <= count) {
    put_some(p, i, values);
  } else {
    for (unsigned j = 0; j < kWidth && i + j < count; ++j) put(p, i + j, values[j]);
  }
}

// Blocks for loops over `count` elements of T in vectors.
template <class T>
unsigned vector_blocks_for(std::size_t count) {
  return blocks_for((count + kVector<T> - 1) / kVector<T>);
}

}  // namespace ddp::cuda
