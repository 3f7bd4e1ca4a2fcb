#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ddp {
namespace {

// Half a cosine from `from` at 0 to `to` at 1.
double cosine(double from, double to, double progress) {
  return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace

// As torch.optim.lr_scheduler.OneCycleLR with two phases, which end at rise T - 1 and T - 1.
double Schedule::one_cycle(double done, double length) const {
  const ScheduleConfig& c = config_;
  const double first = c.lr / c.div;
  const double top = c.rise * length - 1;
  if (top > 0 && done <= top) return cosine(first, c.lr, done / top);
  return cosine(c.lr, first / c.final_div, std::min(1.0, (done - top) / (length - 1 - top)));
}

double Schedule::lr(std::int64_t step) const {
  const ScheduleConfig& c = config_;
  if (static_cast<double>(step) < c.warmup_steps) {
    const double first = c.kind == ScheduleKind::one_cycle ? c.lr / c.div : c.lr;
    return first * std::min(1.0, (static_cast<double>(step) + 1) / c.warmup_steps);
  }
  // From here on in epochs or in steps.
  const std::int64_t unit = c.by_epoch ? c.steps_per_epoch : 1;
  const std::int64_t now = step / unit;
  const double warmup = c.warmup_steps / static_cast<double>(unit);
  const double done = std::max(0.0, static_cast<double>(now) - warmup);
  const double length = std::max(1.0, static_cast<double>(c.total_steps) / static_cast<double>(unit) - warmup);
  const double progress = std::min(1.0, done / length);
  const double interval = c.interval_steps / static_cast<double>(unit);
  switch (c.kind) {
    case ScheduleKind::constant:
      break;
    case ScheduleKind::step:
      return interval > 0 ? c.lr * std::pow(c.gamma, std::floor(static_cast<double>(now) / interval)) : c.lr;
    case ScheduleKind::multi_step:
      return c.lr *
             std::pow(c.gamma, std::upper_bound(c.milestones.begin(), c.milestones.end(), now) - c.milestones.begin());
    case ScheduleKind::cosine:
      return cosine(c.lr, c.lr_min, progress);
    case ScheduleKind::one_cycle:
      return one_cycle(done, length);
    case ScheduleKind::polynomial:
      return c.lr_min + (c.lr - c.lr_min) * std::pow(1 - progress, c.power);
    case ScheduleKind::exponential:
      return c.lr * std::pow(c.gamma, c.staircase ? std::floor(done / interval) : done / interval);
  }
  return c.lr;
}

ScheduleConfig schedule_config(const OptimizerOptions& options, const BatchPlan& plan) {
  ScheduleConfig config;
  config.kind = options.schedule;
  config.lr = scaled_lr(options, plan.global_batch);
  config.lr_min = options.lr_min;
  config.gamma = options.lr_gamma;
  const auto steps_per_epoch = static_cast<double>(plan.steps_per_epoch);
  config.interval_steps = options.lr_decay_steps > 0 ? static_cast<double>(options.lr_decay_steps)
                                                     : static_cast<double>(options.lr_step_epochs) * steps_per_epoch;
  config.milestones = options.lr_milestones;
  config.staircase = options.lr_staircase;
  config.power = options.lr_power;
  config.rise = options.one_cycle_rise;
  config.div = options.one_cycle_div;
  config.final_div = options.one_cycle_final_div;
  config.by_epoch = options.schedule_by == ScheduleBy::epoch ||
                    (options.schedule_by == ScheduleBy::automatic && options.schedule == ScheduleKind::multi_step);
  config.warmup_steps = options.warmup_epochs * steps_per_epoch;
  config.steps_per_epoch = plan.steps_per_epoch;
  config.total_steps = options.epochs * plan.steps_per_epoch;
  return config;
}

}  // namespace ddp
