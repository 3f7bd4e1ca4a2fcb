#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "backend/arithmetic.h"

namespace ddp {
namespace {

// Rounds in double precision to the nearest representable value, ties to even.
float nearest_bf16(float value) {
  int exponent = 0;
  (void)std::frexp(value, &exponent);
  const double place = std::ldexp(1.0, exponent - 8);
  return static_cast<float>(std::nearbyint(static_cast<double>(value) / place) * place);
}

TEST(Bf16, RoundsToTheNearestWithTiesToEven) {
  std::mt19937_64 engine{std::random_device{}()};
  for (int i = 0; i < 100000; ++i) {
    auto bits = static_cast<std::uint32_t>(engine());
    if (i % 3 == 0) bits = (bits & 0xFFFF0000U) | 0x8000U;  // a tie
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isnormal(value) || std::abs(value) > 3e38F) continue;
    ASSERT_EQ(float_of_bf16(bf16_bits(value)), nearest_bf16(value)) << value;
  }
}

TEST(Bf16, KeepsWhatIsNoNumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float_of_bf16(bf16_bits(infinity)), infinity);
  EXPECT_EQ(float_of_bf16(bf16_bits(-infinity)), -infinity);
  EXPECT_TRUE(std::isnan(float_of_bf16(bf16_bits(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(float_of_bf16(bf16_bits(std::numeric_limits<float>::max())), infinity);  // nearer than the largest
  const std::uint32_t small_nan = 0x7F800001U;  // truncation to the upper half would make it infinity
  float value = 0;
  std::memcpy(&value, &small_nan, sizeof value);
  EXPECT_TRUE(std::isnan(float_of_bf16(bf16_bits(value))));
}

}  // namespace
}  // namespace ddp
