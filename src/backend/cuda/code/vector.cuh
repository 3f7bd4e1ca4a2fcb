// Vectorised access to several contiguous elements as float: memory is read and written 16 bytes at a time if possible.
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

#include <cstring>
#include <type_traits>

#include "backend/cuda/code/launch.cuh"

namespace ddp::cuda {

// Elements per 16 bytes.
template <class T>
inline constexpr unsigned kVector = kAlignment / sizeof(T);

// The unit of one access, aligned to at most 16 bytes, like memory.
template <class T, unsigned kWidth>
struct alignas(sizeof(T) * kWidth < kAlignment ? sizeof(T) * kWidth : kAlignment) Pack {
  T values[kWidth];
};

// Access to elements i to i + kWidth - 1, where i is a multiple of kWidth.
template <unsigned kWidth, class T>
__device__ inline Pack<T, kWidth> get_pack(const T* p, std::size_t i) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(p + i);
}
// The same, or zeros: chosen by whole registers.
template <unsigned kWidth, class T>
__device__ inline Pack<T, kWidth> get_pack_if(bool exists, const T* p, std::size_t i) {
  using Values = Pack<T, kWidth>;
  struct alignas(Values) Words {
    std::uint32_t words[sizeof(Values) / 4];
  };
  static_assert(sizeof(Words) == sizeof(Values));
  Words words{};
  if (exists) words = *reinterpret_cast<const Words*>(p + i);
  Values pack;
  std::memcpy(&pack, &words, sizeof(pack));
  return pack;
}
template <unsigned kWidth, class T>
__device__ inline void unpack(const Pack<T, kWidth>& pack, float (&values)[kWidth]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16> && kWidth % 2 == 0) {
    // A bf16 is the upper half of a float: one instruction for each of a pair, where conversions one by one take two.
    std::uint32_t pairs[kWidth / 2];
    std::memcpy(pairs, &pack, sizeof(pairs));
    for (unsigned j = 0; j < kWidth / 2; ++j) {
      values[2 * j] = __uint_as_float(pairs[j] << 16U);
      values[2 * j + 1] = __uint_as_float(pairs[j] & 0xFFFF0000U);
    }
  } else {
    for (unsigned j = 0; j < kWidth; ++j) values[j] = get(pack.values, j);
  }
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

// The same for values that are read again only after more than the second-level cache holds: the cache evicts them first,
// instead of what is read sooner. Only vectors of 16 bytes are treated so.
template <unsigned kWidth, class T>
__device__ inline void put_streaming(T* p, std::size_t i, const float (&values)[kWidth]) {
  if constexpr (sizeof(T) * kWidth == sizeof(float4)) {
    Pack<T, kWidth> pack;
    for (unsigned j = 0; j < kWidth; ++j) put(pack.values, j, values[j]);
    float4 all{};
    std::memcpy(&all, &pack, sizeof(all));
    __stcs(reinterpret_cast<float4*>(p + i), all);
  } else {
    put_some(p, i, values);
  }
}

// The same for elements below `count`; the others are read as 0.
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
