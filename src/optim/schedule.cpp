#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "optim/optimizer.h"

namespace ddp {
namespace {

// Half a cosine from `from` at 0 to `to` at 1.
double cosine(double from, double to, double progress) {
  return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace

// Like torch.optim.lr_scheduler.OneCycleLR with two phases, which end at rise T - 1 and T - 1.
double Schedule::one_cycle(const Position& at, double first, double top, double last) const {
  const double turn = config_.rise * at.length - 1;
  const auto between = [this](double from, double to, double progress) {
    return config_.anneal == Anneal::cosine ? cosine(from, to, progress) : from + (to - from) * progress;
  };
  if (turn > 0 && at.done <= turn) return between(first, top, at.done / turn);
  return between(top, last, std::min(1.0, (at.done - turn) / (at.length - 1 - turn)));
}

Schedule::Position Schedule::position(std::int64_t step) const {
  const ScheduleConfig& c = config_;
  const std::int64_t unit = c.by_epoch ? c.steps_per_epoch : 1;
  const double warmup = c.warmup_steps / static_cast<double>(unit);
  Position at;
  at.now = static_cast<double>(step / unit);
  at.done = std::max(0.0, at.now - warmup);
  at.length = std::max(1.0, static_cast<double>(c.total_steps) / static_cast<double>(unit) - warmup);
  return at;
}

double Schedule::momentum(std::int64_t step) const {
  const ScheduleConfig& c = config_;
  if (c.low_momentum == c.high_momentum || static_cast<double>(step) < c.warmup_steps) return c.high_momentum;
  return one_cycle(position(step), c.high_momentum, c.low_momentum, c.high_momentum);
}

double Schedule::lr(std::int64_t step) const {
  const ScheduleConfig& c = config_;
  const double first = c.kind == ScheduleKind::one_cycle ? c.lr / c.div : c.lr;
  if (static_cast<double>(step) < c.warmup_steps) {
    return first * std::min(1.0, (static_cast<double>(step) + 1) / c.warmup_steps);
  }
  const Position at = position(step);
  const double progress = std::min(1.0, at.done / at.length);
  const double interval = c.interval_steps / static_cast<double>(c.by_epoch ? c.steps_per_epoch : 1);
  switch (c.kind) {
    case ScheduleKind::constant:
      break;
    case ScheduleKind::step:
      return interval > 0 ? c.lr * std::pow(c.gamma, std::floor(at.now / interval)) : c.lr;
    case ScheduleKind::multi_step:
      return c.lr * std::pow(c.gamma, std::upper_bound(c.milestones.begin(), c.milestones.end(),
                                                       static_cast<std::int64_t>(at.now)) -
                                          c.milestones.begin());
    case ScheduleKind::cosine:
      return cosine(c.lr, c.lr_min, progress);
    case ScheduleKind::one_cycle:
      return one_cycle(at, first, c.lr, first / c.final_div);
    case ScheduleKind::polynomial:
      return c.lr_min + (c.lr - c.lr_min) * std::pow(1 - progress, c.power);
    case ScheduleKind::exponential:
      return c.lr * std::pow(c.gamma, c.staircase ? std::floor(at.done / interval) : at.done / interval);
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
  config.anneal = options.one_cycle_anneal;
  config.rise = options.one_cycle_rise;
  config.div = options.one_cycle_div;
  config.final_div = options.one_cycle_final_div;
  config.high_momentum = update_settings(options).own_momentum();
  config.low_momentum = config.high_momentum;
  if (options.one_cycle_momentum) {
    config.high_momentum = options.one_cycle_high_momentum;
    config.low_momentum = options.one_cycle_low_momentum;
  }
  config.by_epoch = options.schedule_by == ScheduleBy::epoch ||
                    (options.schedule_by == ScheduleBy::automatic && options.schedule == ScheduleKind::multi_step);
  config.warmup_steps = options.warmup_epochs * steps_per_epoch;
  config.steps_per_epoch = plan.steps_per_epoch;
  config.total_steps = steps_of_epochs(options.epochs, plan.steps_per_epoch);
  return config;
}

}  // namespace ddp
