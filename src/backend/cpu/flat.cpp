// Loops over flat buffers: sums, checks, optimizers.
#include <bit>

#include "backend/arithmetic.h"
#include "backend/cpu/operators.h"

namespace ddp {
namespace {

// One loop for each form of SGD, so that the compiler sees no choice inside of it and makes vectors.
template <bool kMomentum, bool kNesterov>
void sgd_loop(const SgdArguments& a, SgdCoefficients c) {
  c.nesterov = kNesterov;
  float* weights = a.weights;
  const float* gradient = a.gradient;
  float* velocity = a.velocity;
#pragma omp parallel for simd schedule(static)
  for (std::int64_t i = 0; i < a.count; ++i) {
    sgd_element(weights[i], gradient[i], kMomentum ? velocity + i : nullptr, c);
  }
}

}  // namespace

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

void cpu_sgd(const SgdArguments& arguments) {
  if (*arguments.skip != 0) return;
  SgdCoefficients c = arguments.coefficients;
  c.lr = static_cast<float>(*arguments.lr);
  if (arguments.velocity == nullptr) {
    sgd_loop<false, false>(arguments, c);
  } else if (c.nesterov) {
    sgd_loop<true, true>(arguments, c);
  } else {
    sgd_loop<true, false>(arguments, c);
  }
}

}  // namespace ddp
