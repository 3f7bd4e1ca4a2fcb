// Replaces src/backend/cuda/code/warp_matrix.cuh: the same functions on the host, with the same fragments.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "stand_ins/gpu/grid.h"

namespace ddp::cuda {

struct alignas(16) Unit {
  __nv_bfloat16 values[8];
};

struct Matrices {
  std::uint32_t values[4];
};

namespace emulation {

inline std::uint32_t bits_of(__nv_bfloat16 value) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float value_of(std::uint32_t pair, unsigned which) {
  return std::bit_cast<float>(which == 0 ? pair << 16U : pair & 0xFFFF0000U);
}

inline Matrices load(const Unit* row, bool transposed) {
  Matrices mine{};
  const unsigned g = stand_in::lane() / 4;
  const unsigned t = stand_in::lane() % 4;
  const stand_in::Warp& rows = stand_in::hand_in(*row);
  const auto element = [&](unsigned matrix, unsigned line, unsigned column) {
    return bits_of(rows.of<Unit>(matrix * 8 + line).values[column]);
  };
  for (unsigned i = 0; i < 4; ++i) {
    mine.values[i] = transposed ? element(i, 2 * t, g) | element(i, 2 * t + 1, g) << 16U
                                : element(i, g, 2 * t) | element(i, g, 2 * t + 1) << 16U;
  }
  return mine;
}

struct Factors {
  Matrices a;
  std::uint32_t b[2];
};

}  // namespace emulation

// All threads of the warp must call it; what they have written before is then visible to one another.
inline void converge() { static_cast<void>(stand_in::hand_in(0)); }
inline Matrices load_matrices(const Unit* row) { return emulation::load(row, false); }
inline Matrices load_transposed(const Unit* row) { return emulation::load(row, true); }

inline std::uint32_t lower_halves(std::uint32_t first, std::uint32_t second) {
  return (first & 0xFFFFU) | second << 16U;
}
inline std::uint32_t upper_halves(std::uint32_t first, std::uint32_t second) {
  return first >> 16U | (second & 0xFFFF0000U);
}

inline void multiply_add(float (&sums)[4], const Matrices& a, std::uint32_t b0, std::uint32_t b1) {
  const unsigned g = stand_in::lane() / 4;
  const unsigned t = stand_in::lane() % 4;
  const stand_in::Warp& factors = stand_in::hand_in(emulation::Factors{a, {b0, b1}});
  for (unsigned half = 0; half < 2; ++half) {
    for (unsigned pair = 0; pair < 4; ++pair) {
      const Matrices& rows = factors.of<emulation::Factors>(g * 4 + pair).a;
      const std::uint32_t columns[] = {factors.of<emulation::Factors>(2 * t * 4 + pair).b[half],
                                       factors.of<emulation::Factors>((2 * t + 1) * 4 + pair).b[half]};
      for (unsigned which = 0; which < 2; ++which) {
        for (unsigned i = 0; i < 4; ++i) {
          sums[i] +=
              emulation::value_of(rows.values[half * 2 + i / 2], which) * emulation::value_of(columns[i % 2], which);
        }
      }
    }
  }
}

}  // namespace ddp::cuda
