#include "base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace ddp {
namespace {

// Known-answer tests of Philox4x32-10 from kat_vectors of the Random123 distribution.
TEST(Philox, MatchesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, AStreamIsAFunctionOfItsKeyAlone) {
  Random a(7, 3, 2);
  Random b(7, 3, 2);
  Random other(7, 3, 1);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const std::uint32_t value = a.next_u32();
    EXPECT_EQ(value, b.next_u32());
    differs = differs || value != other.next_u32();
  }
  EXPECT_TRUE(differs);
}

TEST(Random, NormalsHaveTheRightMoments) {
  Random random(11, 0);
  const int count = 200000;
  double sum = 0;
  double square = 0;
  for (int i = 0; i < count; ++i) {
    const double value = random.normal_double();
    sum += value;
    square += value * value;
  }
  // Five standard errors of the mean and of the variance.
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(square / count, 1, 5 * std::sqrt(2.0 / count));
}

TEST(Random, BelowIsUniform) {
  Random random(5, 1);
  std::array<int, 7> counts{};
  for (int i = 0; i < 70000; ++i) ++counts.at(static_cast<std::size_t>(random.below(7)));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
}

TEST(Shuffle, IsAPermutationThatMovesNearlyAll) {
  std::vector<std::uint32_t> values(1000);
  std::iota(values.begin(), values.end(), 0U);
  Random random(1, 2);
  shuffle(values, random);
  int fixed = 0;
  for (std::size_t i = 0; i < values.size(); ++i) fixed += values[i] == i ? 1 : 0;
  EXPECT_LT(fixed, 10);
  std::sort(values.begin(), values.end());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], i);
}

}  // namespace
}  // namespace ddp
