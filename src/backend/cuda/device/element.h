// Elements of activations on a GPU: bf16 and fp16 with these precisions, else fp32. Kernels take untyped pointers and an
// Element; inside a .cu file with_element() turns it into a type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/gpu.h"
#include "backend/tensor.h"

namespace ddp::cuda {

// The alignment of addresses passed to libraries. Memory of a backend has it; a parameter within a flat buffer that is
// not aligned is copied.
inline constexpr std::size_t kAlignment = 16;
inline bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % kAlignment == 0; }

}  // namespace ddp::cuda
