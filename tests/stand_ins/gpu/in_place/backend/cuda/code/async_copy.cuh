// Replaces src/backend/cuda/code/async_copy.cuh: the same functions on the host, which copy at once.
#pragma once

#include <cstring>

namespace ddp::cuda {

template <unsigned kBytes>
void copy_async(void* shared, const void* global) {
  std::memcpy(shared, global, kBytes);
}

template <unsigned kBytes>
void copy_async_if(bool exists, void* shared, const void* global) {
  if (exists) {
    std::memcpy(shared, global, kBytes);
  } else {
    std::memset(shared, 0, kBytes);
  }
}

inline void wait_for_copies() {}

}  // namespace ddp::cuda
