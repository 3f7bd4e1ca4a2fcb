// Elements of activations on a GPU: bf16 with --precision bf16, else fp32. Kernels take untyped pointers and an
// Element; inside a .cu file with_element() turns it into a type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/gpu.h"
#include "backend/tensor.h"

namespace ddp::cuda {

constexpr Element element_of(Precision precision) {
  return precision == Precision::bf16 ? Element::bf16 : Element::fp32;
}

// Libraries are promised addresses that are multiples of this. Memory of a backend is; a parameter within a flat buffer
// need not be, and is copied where it is not.
inline constexpr std::size_t kAlignment = 16;
inline bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % kAlignment == 0; }

}  // namespace ddp::cuda
