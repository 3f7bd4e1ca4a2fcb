#include "optim/loss_scale.h"

#include <gtest/gtest.h>

#include "options/options.h"

namespace ddp {
namespace {

TEST(LossScale, IsDoubledAfterStepsWithoutOverflow) {
  const LossScale scale(1024, 10);
  EXPECT_EQ(scale.at(0), 1024);
  EXPECT_EQ(scale.at(9), 1024);
  EXPECT_EQ(scale.at(10), 2048);
  EXPECT_EQ(scale.at(35), 8192);
  EXPECT_EQ(scale.at(1'000'000'000'000), kMostLossScale);
  EXPECT_EQ(LossScale(1024, 0).at(1'000'000), 1024);
}

TEST(LossScale, IsHalvedFromTheStepThatOverflows) {
  LossScale scale(1024, 10);
  EXPECT_TRUE(scale.lower(25));
  EXPECT_EQ(scale.at(25), 2048);
  EXPECT_EQ(scale.at(34), 2048);
  EXPECT_EQ(scale.at(35), 4096);
  EXPECT_TRUE(scale.lower(25));
  EXPECT_EQ(scale.at(25), 1024);
}

TEST(LossScale, IsNotLessThanOne) {
  LossScale scale(4, 0);
  EXPECT_TRUE(scale.lower(3));
  EXPECT_TRUE(scale.lower(3));
  EXPECT_FALSE(scale.lower(3));
  EXPECT_EQ(scale.at(3), 1);
  LossScale none;
  EXPECT_FALSE(none.lower(0));
  EXPECT_EQ(none.at(100), 1);
}

// As a checkpoint does.
TEST(LossScale, GoesOnFromItsValueAndAge) {
  LossScale scale(1024, 10);
  EXPECT_TRUE(scale.lower(3));
  for (const std::int64_t step : {3, 12, 13, 27, 33}) {
    const LossScale same(scale.at(step), 10, step - scale.steps_since(step));
    for (std::int64_t later = step; later < step + 50; ++later) EXPECT_EQ(same.at(later), scale.at(later)) << later;
  }
}

}  // namespace
}  // namespace ddp
