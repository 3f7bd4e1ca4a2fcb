// Replaces src/backend/cuda/async_copy.cuh: the same functions on the host, which copy at once.
#pragma once

#include <cstring>

namespace ddp::cuda {

template <unsigned kBytes>
void copy_async(void* shared, const void* global) {
  std::memcpy(shared, global, kBytes);
}

inline void wait_for_copies() {}

}  // namespace ddp::cuda
