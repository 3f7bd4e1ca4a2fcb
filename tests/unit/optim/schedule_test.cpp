#include "optim/schedule.h"

#include <gtest/gtest.h>

namespace ddp {
namespace {

TEST(Schedule, ConstantAfterALinearWarmUp) {
  const Schedule schedule({.kind = ScheduleKind::constant, .lr = 0.4, .warmup_steps = 4});
  EXPECT_DOUBLE_EQ(schedule.lr(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.lr(3), 0.4);
  EXPECT_DOUBLE_EQ(schedule.lr(1000), 0.4);
}

TEST(Schedule, StepDecaysByEpochs) {
  const Schedule schedule(
      {.kind = ScheduleKind::step, .lr = 1, .gamma = 0.1, .interval_steps = 20, .steps_per_epoch = 10});
  EXPECT_DOUBLE_EQ(schedule.lr(0), 1);
  EXPECT_DOUBLE_EQ(schedule.lr(19), 1);
  EXPECT_DOUBLE_EQ(schedule.lr(20), 0.1);
  EXPECT_NEAR(schedule.lr(45), 0.01, 1e-15);
}

TEST(Schedule, CosineFallsFromTheTopToTheFloor) {
  const Schedule schedule(
      {.kind = ScheduleKind::cosine, .lr = 1, .lr_min = 0.2, .warmup_steps = 10, .total_steps = 110});
  EXPECT_DOUBLE_EQ(schedule.lr(10), 1);
  EXPECT_NEAR(schedule.lr(60), 0.6, 1e-12);
  EXPECT_NEAR(schedule.lr(110), 0.2, 1e-12);
  for (int step = 11; step < 110; ++step) EXPECT_LT(schedule.lr(step), schedule.lr(step - 1));
}

}  // namespace
}  // namespace ddp
