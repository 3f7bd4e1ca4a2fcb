// Shared by the library stand-ins: access to tensor elements, and overwriting of workspaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/arithmetic.h"

namespace ddp::stand_in {

// Libraries may leave anything in their workspace. These stand-ins leave garbage, so that tests detect an operator that
// keeps data there across a library call.
inline void spoil(void* workspace, std::size_t bytes) {
  if (bytes > 0) std::memset(workspace, 0x7F, bytes);
}

// Elements of a tensor in fp32 or bf16.
inline double read_element(const void* data, std::size_t index, bool bf16) {
  if (bf16) return static_cast<double>(float_of_bf16(static_cast<const std::uint16_t*>(data)[index]));
  return static_cast<double>(static_cast<const float*>(data)[index]);
}

inline void write_element(void* data, std::size_t index, bool bf16, double value) {
  if (bf16) {
    static_cast<std::uint16_t*>(data)[index] = bf16_bits(static_cast<float>(value));
  } else {
    static_cast<float*>(data)[index] = static_cast<float>(value);
  }
}

}  // namespace ddp::stand_in
