#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ddp {

double Schedule::lr(std::int64_t step) const {
  const ScheduleConfig& c = config_;
  const auto now = static_cast<double>(step);
  if (now < c.warmup_steps) return c.lr * std::min(1.0, (now + 1) / c.warmup_steps);
  if (c.kind == ScheduleKind::step && c.step_epochs > 0) {
    return c.lr * std::pow(c.gamma, static_cast<double>(step / c.steps_per_epoch / c.step_epochs));
  }
  if (c.kind == ScheduleKind::cosine) {
    const double length = std::max(1.0, static_cast<double>(c.total_steps) - c.warmup_steps);
    const double progress = std::clamp((now - c.warmup_steps) / length, 0.0, 1.0);
    return c.lr_min + (c.lr - c.lr_min) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
  }
  return c.lr;
}

}  // namespace ddp
