// The grey value of a colour: ITU-R 601, in the fixed point of Pillow's convert("L").
//
//   const std::int32_t grey = grey_of(255, 0, 0);   // 76
#pragma once

#include <cstdint>

namespace ddp {

constexpr std::int32_t grey_of(std::int32_t red, std::int32_t green, std::int32_t blue) {
  return (red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16;
}

}  // namespace ddp
