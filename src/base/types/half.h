// Converts 16-bit floating-point numbers of files, or of activations, to float, which is exact, and from float, which rounds to
// the nearest number, ties to even, as PyTorch does.
//
//   half_to_float(0x3c00);       // 1
//   bfloat16_to_float(0x3f80);   // 1
//   float_to_half(65520);        // 0x7c00, infinity: beyond the largest number, 65504
#pragma once

#include <bit>
#include <cstdint>

namespace ddp {

constexpr float bfloat16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

// IEEE 754 binary16: a sign, 5 bits of exponent (bias 15), 10 bits of fraction.
constexpr float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1fU;
  const std::uint32_t fraction = bits & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | fraction << 13U);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112U) << 23U | fraction << 13U);
  constexpr float kSubnormalStep = 1.0F / 16777216.0F;  // 2^-24, the spacing of subnormal numbers
  const float magnitude = static_cast<float>(fraction) * kSubnormalStep;
  return sign != 0 ? -magnitude : magnitude;
}

constexpr std::uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);  // NaN
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}

constexpr std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16U & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);  // NaN
  const std::uint32_t exponent = magnitude >> 23U;
  if (exponent >= 143U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // from 2^16 on
  if (exponent < 102U) return static_cast<std::uint16_t>(sign);             // less than half of the smallest number
  // Normal numbers lose 13 bits; subnormal ones, below 2^-14, more, and their leading one is stored.
  const bool subnormal = exponent < 113U;
  const std::uint32_t lost = subnormal ? 126U - exponent : 13U;
  const std::uint32_t fraction = subnormal ? (magnitude & 0x7fffffU) | 0x800000U : magnitude - (112U << 23U);
  const std::uint32_t kept = fraction >> lost;
  const std::uint32_t rest = fraction & ((1U << lost) - 1U);
  const std::uint32_t half = 1U << (lost - 1U);
  const bool up = rest > half || (rest == half && (kept & 1U) != 0);
  return static_cast<std::uint16_t>(sign | (kept + (up ? 1U : 0U)));
}

}  // namespace ddp
