#include "metrics/phases.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "stand_ins/clock.h"

namespace ddp {
namespace {

// Times are integers, so that sums are exact.
TEST(PhaseClockTest, EveryInstantBelongsToOnePhase) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  stand_in_time = 1000;
  PhaseClock clock(Phase::other, read_stand_in_time);
  PhaseTotals expected;
  PhaseTotals expected_lap;
  PhaseTotals laps;
  Phase phase = Phase::other;
  for (int i = 0; i < 1000; ++i) {
    const auto passed = static_cast<double>(random() % 10);
    stand_in_time += passed;
    expected[phase] += passed;
    expected_lap[phase] += passed;
    if (random() % 20 == 0) {
      const PhaseTotals lap = clock.lap();
      EXPECT_EQ(lap, expected_lap);
      laps += lap;
      expected_lap = {};
    }
    phase = kPhases[random() % kPhaseCount];
    clock.switch_to(phase);
    EXPECT_EQ(clock.phase(), phase);
  }
  laps += clock.lap();
  EXPECT_EQ(clock.totals(), expected);
  EXPECT_EQ(laps, expected);
  EXPECT_EQ(expected.sum(), stand_in_time - 1000);
}

TEST(PhaseClockTest, AScopeGoesBackToThePhaseBefore) {
  stand_in_time = 0;
  PhaseClock clock(Phase::backward, read_stand_in_time);
  stand_in_time = 1;
  {
    const PhaseScope outer(clock, Phase::evaluation);
    stand_in_time = 3;
    {
      const PhaseScope inner(clock, Phase::data_wait);
      stand_in_time = 7;
    }
    stand_in_time = 15;
  }
  stand_in_time = 31;
  const PhaseTotals totals = clock.totals();
  EXPECT_EQ(totals[Phase::backward], 1 + 16);
  EXPECT_EQ(totals[Phase::evaluation], 2 + 8);
  EXPECT_EQ(totals[Phase::data_wait], 4);
}

TEST(PhaseClockTest, MovedTimeChangesNoSum) {
  stand_in_time = 0;
  PhaseClock clock(Phase::backward, read_stand_in_time);
  stand_in_time = 8;
  clock.switch_to(Phase::other);
  clock.move(Phase::backward, Phase::exposed_communication, 3);
  const PhaseTotals lap = clock.lap();
  EXPECT_EQ(lap[Phase::backward], 5);
  EXPECT_EQ(lap[Phase::exposed_communication], 3);
  EXPECT_EQ(lap.sum(), 8);
}

TEST(PhaseClockTest, TheRealClockGoesForward) {
  PhaseClock clock(Phase::forward);
  clock.switch_to(Phase::backward);
  clock.switch_to(Phase::forward);
  const PhaseTotals totals = clock.totals();
  EXPECT_GE(totals[Phase::forward], 0);
  EXPECT_GE(totals[Phase::backward], 0);
  EXPECT_GE(totals.sum(), 0);
}

TEST(PhaseNamesTest, AreTheKeysOfTheLog) {
  std::set<std::string> keys;
  for (const Phase phase : kPhases) keys.insert(phase_key(phase));
  EXPECT_EQ(keys, (std::set<std::string>{"data_wait", "forward", "backward", "exposed_communication", "optimizer",
                                         "evaluation", "checkpoint", "other"}));
  EXPECT_EQ(phase_label(Phase::exposed_communication), "exposed communication");
  EXPECT_STREQ(phase_key(Phase::checkpoint), "checkpoint");
}

}  // namespace
}  // namespace ddp
