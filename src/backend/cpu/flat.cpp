// Loops over flat buffers: sums, checks.
#include <array>

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

// Independent sums, so that additions need not wait for one another. No square of a finite float overflows, so the result
// is finite if and only if all values are.
double cpu_square_sum(const float* values, std::size_t count) {
  constexpr std::size_t kSums = 8;
  std::array<double, kSums> sums{};
  std::size_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::size_t k = 0; k < kSums; ++k) {
      const double value = values[i + k];
      sums[k] += value * value;
    }
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

}  // namespace ddp
