// Loops over flat buffers: sums, checks.
#include <bit>

#include "backend/arithmetic.h"
#include "backend/cpu/operators.h"

namespace ddp {
void cpu_add(float* __restrict sum, const float* __restrict addend, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += addend[i];
}

void cpu_to_bf16(Bf16* to, const float* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i].bits = bf16_bits(from[i]);
}

void cpu_from_bf16(float* to, const Bf16* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = float_of_bf16(from[i].bits);
}

// The exponents of infinity and NaN have all bits set.
bool cpu_all_finite(const float* values, std::size_t count) {
  constexpr std::uint32_t kExponent = 0x7F800000;
  std::uint32_t broken = 0;
  for (std::size_t i = 0; i < count; ++i) {
    broken |= (std::bit_cast<std::uint32_t>(values[i]) & kExponent) == kExponent ? 1U : 0U;
  }
  return broken == 0;
}

}  // namespace ddp
