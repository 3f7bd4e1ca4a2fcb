// How tensor cores multiply activations in fp32.
//
// Note [Parts]
// Values in fp32 are divided into parts of bf16, each the rounded rest of those before. Of the products of two values' parts
// those are added that are not negligible, the smallest ones first: with tf32 two parts and three products, whose relative error
// of 2^-16 is below tf32's 2^-11; with fp32 three parts and six products, 2^-24 (Henry, Tang and Heinecke, "Leveraging the
// bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", 2019).
//
//   const std::uint32_t parts = parts_of(context.precision);
#pragma once

#include <cstdint>

#include "base/types/precision.h"

namespace ddp::cuda {

// 1: activations are bf16, otherwise fp32.
constexpr std::uint32_t parts_of(Precision precision) {
  return precision == Precision::bf16 ? 1 : precision == Precision::tf32 ? 2 : 3;
}

}  // namespace ddp::cuda
