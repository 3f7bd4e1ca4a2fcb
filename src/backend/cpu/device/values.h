// Activations as arrays of their elements, for operators that are written once for several types.
//
//   template <class Value>                        // float, Bf16 or Fp16
//   ... kernel(raw(values<Value>(a.x) + at));     // kernels take bf16 numbers as std::uint16_t
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/activations.h"

namespace ddp {

// The element type of kernels.
template <class Value>
using Raw = std::conditional_t<std::is_same_v<Value, Bf16>, std::uint16_t, float>;

// As which activations store them.
template <class Value>
constexpr Element kElementOf = std::is_same_v<Value, Bf16>   ? Element::bf16
                               : std::is_same_v<Value, Fp16> ? Element::fp16
                                                             : Element::fp32;

// Throws an internal error if the elements are of another type.
template <class Value>
const Value* values(ConstActivations from) {
  if constexpr (std::is_same_v<Value, Bf16>) return from.bf16();
  if constexpr (std::is_same_v<Value, Fp16>) return from.fp16();
  if constexpr (std::is_same_v<Value, float>) return from.fp32();
}
template <class Value>
Value* values(Activations from) {
  if constexpr (std::is_same_v<Value, Bf16>) return from.bf16();
  if constexpr (std::is_same_v<Value, Fp16>) return from.fp16();
  if constexpr (std::is_same_v<Value, float>) return from.fp32();
}

inline const float* raw(const float* p) { return p; }
inline float* raw(float* p) { return p; }
inline const std::uint16_t* raw(const Bf16* p) { return &p->bits; }
inline std::uint16_t* raw(Bf16* p) { return &p->bits; }

// The one of two tables of kernels that is for these values.
template <class Value, class Fp32, class Bf16Table>
const auto& of_values(const Fp32& fp32, const Bf16Table& bf16) {
  if constexpr (std::is_same_v<Value, Bf16>) {
    return bf16;
  } else {
    return fp32;
  }
}

}  // namespace ddp
