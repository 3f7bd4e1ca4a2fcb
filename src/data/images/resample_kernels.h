// The loops over pixels of resizing, for different processors. All give the same bytes.
//
// A pixel passes through two sums: down the rows, which gives 64ths of a level, and along the row, which gives 32nds.
// Each product is rounded by itself, as the processor's multiplication of vectors of 16-bit numbers does (pmulhrsw).
#pragma once

#include <cstdint>
#include <vector>

#include "data/images/resample.h"

namespace ddp {

struct ResampleTask {
  RasterView source;
  const AxisFilter& horizontal;
  const AxisFilter& vertical;
  std::int64_t width = 0;  // of the result
  std::int64_t height = 0;
  std::uint8_t* out = nullptr;         // [source.channels][height][width]
  std::vector<std::int16_t>& scratch;  // kept between calls
};

// a * b / 2^15, rounded: bytes are shifted left by 7, so that with weights of 14 bits 6 bits of fraction remain.
inline std::int16_t scaled_product(std::int16_t a, std::int16_t b) {
  return static_cast<std::int16_t>((((static_cast<std::int32_t>(a) * static_cast<std::int32_t>(b)) >> 14) + 1) >> 1);
}

void resample_portable(const ResampleTask& task);
// For processors with AVX2; null where the program was built for others.
using ResampleKernel = void (*)(const ResampleTask&);
ResampleKernel resample_avx2();

}  // namespace ddp
