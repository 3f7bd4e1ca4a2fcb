#include "sweep/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace ddp {
namespace {

TEST(Scheduler, RunsEveryTrialOnce) {
  Scheduler scheduler(3, {});
  EXPECT_EQ(scheduler.start(), 0);
  EXPECT_EQ(scheduler.start(), 1);
  EXPECT_TRUE(scheduler.evaluated(0, 1, 0.1));
  scheduler.ended(0, TrialState::finished);
  scheduler.ended(1, TrialState::failed);
  EXPECT_EQ(scheduler.start(), 2);
  EXPECT_EQ(scheduler.start(), std::nullopt);
  EXPECT_FALSE(scheduler.done());
  scheduler.ended(2, TrialState::finished);
  EXPECT_TRUE(scheduler.done());
}

TEST(Scheduler, AnInterruptedTrialIsStartedAgain) {
  Scheduler scheduler(1, {});
  EXPECT_EQ(scheduler.start(), 0);
  scheduler.ended(0, TrialState::waiting);
  EXPECT_FALSE(scheduler.done());
  EXPECT_EQ(scheduler.start(), 0);
}

// Trains epoch by epoch on `slots` ranks at once; trial i has the score `quality[i]`. Returns the epochs of each trial.
std::vector<std::int64_t> simulate(const std::vector<double>& quality, const Halving& halving, std::size_t slots) {
  Scheduler scheduler(static_cast<int>(quality.size()), halving);
  std::vector<std::int64_t> epochs(quality.size());
  std::vector<int> running;
  while (!scheduler.done()) {
    while (running.size() < slots) {
      const std::optional<int> next = scheduler.start();
      if (!next) break;
      running.push_back(*next);
    }
    std::vector<int> still;
    for (const int trial : running) {
      const auto i = static_cast<std::size_t>(trial);
      const std::int64_t epoch = ++epochs[i];
      if (!scheduler.evaluated(trial, epoch, quality[i])) {
        scheduler.ended(trial, TrialState::paused);
      } else if (epoch == halving.epochs) {
        scheduler.ended(trial, TrialState::finished);
      } else {
        still.push_back(trial);
      }
    }
    running = still;
  }
  return epochs;
}

TEST(Scheduler, HalvingFinishesTheBestTrialAndSavesMostEpochs) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> quality(27);
    for (std::size_t i = 0; i < quality.size(); ++i) quality[i] = static_cast<double>(i);
    std::shuffle(quality.begin(), quality.end(), random);
    const std::vector<std::int64_t> epochs = simulate(quality, {.factor = 3, .first_rung = 1, .epochs = 27}, 4);
    const auto best = std::max_element(quality.begin(), quality.end()) - quality.begin();
    EXPECT_EQ(epochs[static_cast<std::size_t>(best)], 27);
    std::int64_t sum = 0;
    for (const std::int64_t e : epochs) {
      // Every trial is tried, and pauses only behind a rung.
      EXPECT_TRUE(e == 1 || e == 3 || e == 9 || e == 27) << e;
      sum += e;
    }
    // All of them to the end would be 729. Synchronous halving takes 27 + 9*2 + 3*6 + 18 = 81; the asynchronous form promotes
    // some too early.
    EXPECT_LT(sum, 300);
  }
}

TEST(Scheduler, WithFewerTrialsThanTheFactorTheBestOneFinishes) {
  const std::vector<std::int64_t> epochs = simulate({0.3, 0.5, 0.4}, {.factor = 4, .first_rung = 1, .epochs = 8}, 2);
  EXPECT_EQ(epochs, (std::vector<std::int64_t>{1, 8, 1}));
}

TEST(Scheduler, AContinuedSweepKeepsItsPausedTrials) {
  Scheduler scheduler(2, {.factor = 2, .first_rung = 1, .epochs = 4});
  EXPECT_FALSE(scheduler.evaluated(0, 1, 0.9));
  scheduler.restore(0, TrialState::paused);
  EXPECT_TRUE(scheduler.held(0));
  EXPECT_EQ(scheduler.start(), 1);
  EXPECT_FALSE(scheduler.evaluated(1, 1, 0.2));
  scheduler.ended(1, TrialState::paused);
  // The better one of two trials passes.
  EXPECT_EQ(scheduler.start(), 0);
}

}  // namespace
}  // namespace ddp
