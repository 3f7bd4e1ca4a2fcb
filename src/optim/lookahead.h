// Lookahead (Zhang, Lucas, Hinton, Ba: "Lookahead Optimizer: k steps forward, 1 step back", 2019): beside the trained
// weights there are slow ones. Every k steps the slow weights move towards the trained ones, which continue from there:
//
//   const LookaheadConfig config{.every = 5, .decay = 0.5, .total_steps = 476};
//   if (const std::optional<float> rest = lookahead_rest(config, step)) {
//     backend.math().pull(slow, parameters, parameter_count, *rest, /*skip=*/nullptr);
//   }
//
// So slow = d slow + (1 - d) weights, and then weights = slow. d is `decay`, with `power` p multiplied by (t / T)^p after
// t of T steps (as in K. Jordan's airbench94). At the end of training the weights become the slow ones. Running
// statistics are treated like weights. With --max-steps, T are the steps of all epochs, so that a short run is a prefix
// of the long one.
#pragma once

#include <cstdint>
#include <optional>

#include "options/batch.h"
#include "options/options.h"

namespace ddp {

struct LookaheadConfig {
  std::int64_t every = 0;  // k; 0: no lookahead
  double decay = 0.5;
  double power = 0;
  std::int64_t total_steps = 1;
};

// How far the slow weights move after this step, from 1, as a fraction of the way: 1 - d every k steps, 0 at the end of
// training where that is none of them; nothing after other steps.
std::optional<float> lookahead_rest(const LookaheadConfig& config, std::int64_t step);

// Converts the options.
LookaheadConfig lookahead_config(const OptimizerOptions& options, const BatchPlan& plan);

}  // namespace ddp
