// The learning rate as a function of the step.
//
//   Schedule schedule({.kind = ScheduleKind::cosine, .lr = 0.1, .warmup_steps = 100, .steps_per_epoch = 235,
//                      .total_steps = 2350});
//   double lr = schedule.lr(step);
#pragma once

#include <cstdint>

#include "options/options.h"

namespace ddp {

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::constant;
  double lr = 0.1;
  double lr_min = 0;
  double gamma = 0.1;
  std::int64_t step_epochs = 0;  // of ScheduleKind::step; 0: never
  double warmup_steps = 0;       // linear from lr / warmup_steps to lr
  std::int64_t steps_per_epoch = 1;
  std::int64_t total_steps = 1;
};

class Schedule {
 public:
  explicit Schedule(const ScheduleConfig& config) : config_(config) {}

  // The learning rate of step 0, 1, ...: constant; lr * gamma^(epoch / step_epochs); or a cosine from lr, after the
  // warm-up, to lr_min at total_steps (Loshchilov and Hutter, 2017, without restarts).
  double lr(std::int64_t step) const;

 private:
  ScheduleConfig config_;
};

}  // namespace ddp
