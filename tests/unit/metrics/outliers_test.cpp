#include "metrics/outliers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace ddp {
namespace {

TEST(OutliersTest, NoiseAndATrendAreNone) {
  std::mt19937 generator(std::random_device{}());
  std::normal_distribution<double> noise(0, 0.05);
  Outliers outliers;
  for (int step = 0; step < 20000; ++step)
    EXPECT_FALSE(outliers.note(0.5 + 2 * std::exp(-step / 500.0) + noise(generator)));
}

TEST(OutliersTest, ASpikeStandsOutAndLeavesTheScaleAlone) {
  std::mt19937 generator(std::random_device{}());
  std::normal_distribution<double> noise(2, 0.1);
  Outliers outliers;
  EXPECT_FALSE(outliers.note(1e9)) << "nothing to compare with";
  for (std::size_t step = 0; step < Outliers::kWindow; ++step) EXPECT_FALSE(outliers.note(noise(generator)));
  const auto found = outliers.note(4);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->value, 4);
  EXPECT_NEAR(found->median, 2, 0.1);
  EXPECT_NEAR(found->z, 20, 10);
  // Those that follow are not reported, unless they are far larger.
  for (int spike = 0; spike < 10; ++spike) EXPECT_FALSE(outliers.note(4));
  EXPECT_TRUE(outliers.note(10));
  for (std::size_t step = 0; step < Outliers::kWindow; ++step) EXPECT_FALSE(outliers.note(noise(generator)));
  EXPECT_TRUE(outliers.note(4));
  EXPECT_FALSE(outliers.note(0)) << "only spikes upwards";
}

TEST(OutliersTest, OneInEveryWindowOfEqualValuesStandsOutOnlyIfItIsFarOff) {
  Outliers outliers;
  for (std::size_t step = 0; step < Outliers::kWindow; ++step) outliers.note(1);
  EXPECT_FALSE(outliers.note(1 + 1e-6));
  EXPECT_TRUE(outliers.note(1.01));
}

TEST(OutliersTest, WhatIsNotFiniteIsNotNoted) {
  Outliers outliers;
  for (std::size_t step = 0; step < Outliers::kWindow; ++step) {
    outliers.note(1);
    EXPECT_FALSE(outliers.note(std::numeric_limits<double>::quiet_NaN()));
    EXPECT_FALSE(outliers.note(std::numeric_limits<double>::infinity()));
  }
  EXPECT_TRUE(outliers.note(2));
}

}  // namespace
}  // namespace ddp
