// The integer hash with which the scripts in tests/golden generate their inputs.
#pragma once

#include <cstdint>

namespace ddp::golden {

// The finaliser of MurmurHash3 (Austin Appleby, public domain).
inline std::uint32_t hash32(std::uint32_t h) {
  h ^= h >> 16U;
  h *= 0x85ebca6bU;
  h ^= h >> 13U;
  h *= 0xc2b2ae35U;
  return h ^ (h >> 16U);
}

}  // namespace ddp::golden
