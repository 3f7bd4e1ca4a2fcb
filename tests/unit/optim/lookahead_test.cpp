#include "optim/lookahead.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ddp {
namespace {

TEST(Lookahead, PullsEveryFewStepsAndGivesTheSlowWeightsAtTheEnd) {
  const LookaheadConfig config{.every = 3, .decay = 0.25, .total_steps = 11};
  for (std::int64_t step = 1; step <= 11; ++step) {
    const std::optional<float> rest = lookahead_rest(config, step);
    if (step == 11) {
      EXPECT_EQ(rest, 0.0F);
    } else if (step % 3 == 0) {
      EXPECT_EQ(rest, 0.75F);
    } else {
      EXPECT_FALSE(rest.has_value()) << step;
    }
  }
  EXPECT_EQ(lookahead_rest({.every = 3, .decay = 0.25, .total_steps = 12}, 12), 0.75F);
  EXPECT_FALSE(lookahead_rest({.every = 0, .total_steps = 11}, 11).has_value());
}

// airbench94's schedule: 0.95**5 * (step / steps)**3.
TEST(Lookahead, DecayGrowsWithItsPower) {
  const LookaheadConfig config{.every = 5, .decay = std::pow(0.95, 5), .power = 3, .total_steps = 476};
  EXPECT_NEAR(*lookahead_rest(config, 5), 1 - 0.7737809375 * std::pow(5.0 / 476, 3), 1e-7);
  EXPECT_NEAR(*lookahead_rest(config, 475), 1 - 0.7737809375 * std::pow(475.0 / 476, 3), 1e-7);
  EXPECT_EQ(lookahead_rest(config, 476), 0.0F);
}

// A run that --max-steps ends is the beginning of the whole one.
TEST(Lookahead, CountsTheStepsOfAllEpochs) {
  OptimizerOptions options;
  options.lookahead = 5;
  options.epochs = 9.9;
  options.max_steps = 20;
  BatchPlan plan;
  plan.steps_per_epoch = 48;
  const LookaheadConfig config = lookahead_config(options, plan);
  EXPECT_EQ(config.total_steps, 476);
  EXPECT_EQ(config.every, 5);
  EXPECT_EQ(config.decay, 0.5);
}

}  // namespace
}  // namespace ddp
