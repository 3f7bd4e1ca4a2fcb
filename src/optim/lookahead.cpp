#include "optim/lookahead.h"

#include <cmath>

namespace ddp {

std::optional<float> lookahead_rest(const LookaheadConfig& config, std::int64_t step) {
  if (config.every == 0) return std::nullopt;
  if (step % config.every != 0) {
    const bool last = step == config.total_steps;
    return last ? std::optional(0.0F) : std::nullopt;
  }
  const double progress = static_cast<double>(step) / static_cast<double>(config.total_steps);
  return static_cast<float>(1 - config.decay * std::pow(progress, config.power));
}

LookaheadConfig lookahead_config(const OptimizerOptions& options, const BatchPlan& plan) {
  return {options.lookahead, options.lookahead_decay, options.lookahead_power,
          steps_of_epochs(options.epochs, plan.steps_per_epoch)};
}

}  // namespace ddp
