// The learning rate and the momentum as functions of the step.
//
//   Schedule schedule({.kind = ScheduleKind::cosine, .lr = 0.1, .warmup_steps = 100, .steps_per_epoch = 235,
//                      .total_steps = 2350});
//   double lr = schedule.lr(step);
//   double momentum = schedule.momentum(step);
//
// T is the number of steps after the warm-up, t the number of these completed:
//
//   constant     lr
//   step         lr gamma^floor(step / interval), counted from the beginning of training   (PyTorch's StepLR)
//   multi-step   lr gamma^(milestones reached), likewise                                   (MultiStepLR)
//   cosine       from lr to lr_min (Loshchilov and Hutter, 2017, without restarts)         (CosineAnnealingLR)
//   one-cycle    cosine or line from lr / div to lr at rise T - 1, then to lr / (div final_div) at T - 1; the momentum,
//                if given, from high to low and back (Smith and Topin, 2018)               (OneCycleLR)
//   polynomial   lr_min + (lr - lr_min) (1 - t / T)^power                                  (PolynomialLR)
//   exponential  lr gamma^(t / interval), rounded down with staircase    (TensorFlow's exponential_decay,
//   ExponentialLR)
//
// The warm-up is linear up to the initial value of the schedule. With by_epoch, values after the warm-up change only
// between epochs, as when PyTorch's step() is called once per epoch.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "optim/rules/settings.h"
#include "options/batch.h"
#include "options/options.h"

namespace ddp {

struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::constant;
  double lr = 0.1;
  double lr_min = 0;
  double gamma = 0.1;
  double interval_steps = 0;                  // between decays
  std::vector<std::int64_t> milestones = {};  // increasing; epochs with by_epoch, otherwise steps
  bool staircase = false;
  double power = 1;
  Anneal anneal = Anneal::cosine;  // of one_cycle
  double rise = 0.3;
  double div = 25;
  double final_div = 1e4;
  double high_momentum = 0;  // of one_cycle; for other schedules the constant momentum
  double low_momentum = 0;
  bool by_epoch = false;
  double warmup_steps = 0;
  std::int64_t steps_per_epoch = 1;
  std::int64_t total_steps = 1;
};

class Schedule {
 public:
  explicit Schedule(ScheduleConfig config) : config_(std::move(config)) {}

  // The learning rate of step 0, 1, ...
  double lr(std::int64_t step) const;
  // The momentum of step 0, 1, ...; beta1 for the rules that have one.
  double momentum(std::int64_t step) const;
  // The control of the update in step 0, 1, ..., which has number step + 1.
  StepControl control(std::int64_t step) const {
    return {lr(step), momentum(step), static_cast<double>(step + 1), config_.lr};
  }

 private:
  // In epochs or steps, as the schedule counts.
  struct Position {
    double now = 0;     // since the beginning of training
    double done = 0;    // since the end of the warm-up
    double length = 1;  // of the schedule after the warm-up
  };
  Position position(std::int64_t step) const;
  double one_cycle(const Position& at, double first, double top, double last) const;

  ScheduleConfig config_;
};

// Converts the options. total_steps covers all epochs even if --max-steps ends the run early, so that a short run is a
// prefix of the long one.
ScheduleConfig schedule_config(const OptimizerOptions& options, const BatchPlan& plan);

}  // namespace ddp
