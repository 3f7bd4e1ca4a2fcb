#include "base/types/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace ddp {
namespace {

// Between each two neighbouring numbers: what is nearer to the lower one becomes the lower one, and the middle the even one.
template <class Widen, class Round>
void check_rounding(std::uint16_t infinity, Widen widen, Round round) {
  for (std::uint16_t bits = 0; bits + 1 < infinity; ++bits) {
    const auto next = static_cast<std::uint16_t>(bits + 1);
    const double lower = static_cast<double>(widen(bits));
    const double upper = static_cast<double>(widen(next));
    const auto middle = static_cast<float>((lower + upper) / 2);
    ASSERT_EQ(static_cast<double>(middle), (lower + upper) / 2) << bits;
    ASSERT_EQ(round(widen(bits)), bits);
    ASSERT_EQ(round(middle), bits % 2 == 0 ? bits : next) << bits;
    ASSERT_EQ(round(std::nextafter(middle, 0.0F)), bits) << bits;
    ASSERT_EQ(round(std::nextafter(middle, std::numeric_limits<float>::infinity())), next) << bits;
    ASSERT_EQ(round(-middle), round(middle) | 0x8000U) << bits;
  }
}

TEST(Half, FloatsAreRoundedToTheNearestTiesToEven) {
  check_rounding(0x7c00, half_to_float, float_to_half);
  check_rounding(0x7f80, bfloat16_to_float, float_to_bfloat16);
}

TEST(Half, LargeNumbersBecomeInfinite) {
  EXPECT_EQ(float_to_half(65519.99F), 0x7bff);  // 65504
  EXPECT_EQ(float_to_half(65520), 0x7c00);
  EXPECT_EQ(float_to_half(-1e30F), 0xfc00);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(float_to_bfloat16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(float_to_bfloat16(-std::numeric_limits<float>::infinity()), 0xff80);
}

TEST(Half, NanStaysNan) {
  for (const float nan : {std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0x7f800001U)}) {
    EXPECT_TRUE(std::isnan(half_to_float(float_to_half(nan))));
    EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(nan))));
  }
}

}  // namespace
}  // namespace ddp
