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

// golden_test.cpp compares what a ScheduleConfig means with PyTorch.
TEST(Schedule, EveryOptionReachesIt) {
  const BatchPlan plan{.global_batch = 64, .steps_per_epoch = 10};
  OptimizerOptions o;
  o.lr = 0.5;
  o.lr_scale = LrScale::linear;
  o.lr_base_batch = 32;
  o.epochs = 4.5;
  o.warmup_epochs = 0.5;
  o.lr_min = 0.01;
  o.lr_gamma = 0.3;
  o.lr_step_epochs = 2;
  o.lr_milestones = {1, 3};
  o.lr_staircase = true;
  o.lr_power = 2;
  o.momentum = 0.7;
  ScheduleConfig c = schedule_config(o, plan);
  EXPECT_EQ(c.kind, ScheduleKind::constant);
  EXPECT_EQ(c.lr, 1);
  EXPECT_EQ(c.steps_per_epoch, 10);
  EXPECT_EQ(c.total_steps, 45);
  EXPECT_EQ(c.warmup_steps, 5);
  EXPECT_EQ(c.lr_min, 0.01);
  EXPECT_EQ(c.gamma, 0.3);
  EXPECT_EQ(c.interval_steps, 20);
  EXPECT_EQ(c.milestones, o.lr_milestones);
  EXPECT_TRUE(c.staircase);
  EXPECT_EQ(c.power, 2);
  EXPECT_EQ(c.high_momentum, 0.7);
  EXPECT_EQ(c.low_momentum, 0.7);
  EXPECT_FALSE(c.by_epoch);
  o.lr_step_epochs = 0;
  o.lr_decay_steps = 7;
  EXPECT_EQ(schedule_config(o, plan).interval_steps, 7);

  o.schedule = ScheduleKind::one_cycle;
  o.one_cycle_anneal = Anneal::linear;
  o.one_cycle_rise = 0.4;
  o.one_cycle_div = 10;
  o.one_cycle_final_div = 100;
  o.momentum = 0;
  o.one_cycle_momentum = true;
  o.one_cycle_low_momentum = 0.8;
  o.one_cycle_high_momentum = 0.9;
  c = schedule_config(o, plan);
  EXPECT_EQ(c.kind, ScheduleKind::one_cycle);
  EXPECT_EQ(c.anneal, Anneal::linear);
  EXPECT_EQ(c.rise, 0.4);
  EXPECT_EQ(c.div, 10);
  EXPECT_EQ(c.final_div, 100);
  EXPECT_EQ(c.high_momentum, 0.9);
  EXPECT_EQ(c.low_momentum, 0.8);
}

TEST(Schedule, CountsInEpochsOrSteps) {
  OptimizerOptions o;
  const auto by_epoch = [&](ScheduleKind kind, ScheduleBy by) {
    o.schedule = kind;
    o.schedule_by = by;
    return schedule_config(o, {.steps_per_epoch = 10}).by_epoch;
  };
  EXPECT_TRUE(by_epoch(ScheduleKind::multi_step, ScheduleBy::automatic));
  EXPECT_FALSE(by_epoch(ScheduleKind::cosine, ScheduleBy::automatic));
  EXPECT_FALSE(by_epoch(ScheduleKind::multi_step, ScheduleBy::step));
  EXPECT_TRUE(by_epoch(ScheduleKind::cosine, ScheduleBy::epoch));
}

}  // namespace
}  // namespace ddp
