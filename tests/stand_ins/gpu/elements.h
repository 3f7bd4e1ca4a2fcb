// Shared by the library stand-ins: access to tensor elements, and overwriting of workspaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/activations.h"

namespace ddp::stand_in {

// Libraries may leave anything in their workspace. These stand-ins leave garbage, so that tests detect an operator that
// keeps data there across a library call.
inline void spoil(void* workspace, std::size_t bytes) {
  if (bytes > 0) std::memset(workspace, 0x7F, bytes);
}

// Elements of a tensor.
inline double read_element(const void* data, std::size_t index, Element type) {
  return static_cast<double>(value_at(data, type, index));
}

inline void write_element(void* data, std::size_t index, Element type, double value) {
  set_value(data, type, index, static_cast<float>(value));
}

// to += factor * from, which compilers vectorise.
inline void add_multiple(std::size_t count, double factor, const double* from, double* to) {
  for (std::size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

}  // namespace ddp::stand_in
