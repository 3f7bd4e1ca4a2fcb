// The pixel loops of resizing for different instruction sets. All give the same bytes.
//
// There are two passes: the vertical one gives 64ths of a level, the horizontal one 32nds. Each product is rounded
// individually, as by the 16-bit vector multiplication (pmulhrsw).
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
// For processors with AVX2; null if not built for x86-64.
using ResampleKernel = void (*)(const ResampleTask&);
ResampleKernel resample_avx2();

}  // namespace ddp
