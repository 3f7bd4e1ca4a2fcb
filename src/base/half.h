// Converts 16-bit floating-point numbers of ONNX and safetensors files to float; the conversion is exact.
//
//   half_to_float(0x3c00);       // 1
//   bfloat16_to_float(0x3f80);   // 1
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
  constexpr float kSmallest = 1.0F / 16777216.0F;  // 2^-24, the spacing of subnormal numbers
  const float magnitude = static_cast<float>(fraction) * kSmallest;
  return sign != 0 ? -magnitude : magnitude;
}

}  // namespace ddp
