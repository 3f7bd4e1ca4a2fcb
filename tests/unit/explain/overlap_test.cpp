// Sums that backward hides, and what a longer backward leaves of them.
#include "explain/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "explain/step_model.h"

namespace ddp {
namespace {

std::mt19937_64& generator() {
  static std::mt19937_64 random(std::random_device{}());
  return random;
}

double between(double low, double high) { return std::uniform_real_distribution(low, high)(generator()); }

TEST(OverlapTest, SumsWaitForTheirBucketsAndForOneAnother) {
  EXPECT_EQ(exposed_sums({}, 1), 0);
  EXPECT_EQ(exposed_sums({}, 1, 0.5), 0.5);
  // From 0.2 to 0.8, from there to 1.1, and from 1.1, as the last is ready at 1, to 1.2.
  const std::vector<QueuedSum> sums = {{0.2, 0.6}, {0.5, 0.3}, {1, 0.1}};
  EXPECT_NEAR(exposed_sums(sums, 1), 0.2, 1e-12);
  // With 1 second more all take twice as long: from 0.2 to 1.4, to 2, to 2.2.
  EXPECT_NEAR(exposed_sums(sums, 1, 1), 1.2, 1e-12);
  // When backward takes 10 s, only the last is exposed.
  EXPECT_NEAR(exposed_sums(sums, 10), 0.1, 1e-12);
}

TEST(OverlapTest, TheDelayIsFoundWithWhichSoMuchIsExposed) {
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<QueuedSum> sums;
    double ready = 0;
    for (int i = 0; i < 1 + trial % 5; ++i) {
      ready = between(ready, 1);
      sums.push_back({ready, between(0.01, 0.3)});
    }
    const double exposed = exposed_sums(sums, 1) + between(0, 1);
    EXPECT_NEAR(exposed_sums(sums, 1, delay_of_sums(sums, 1, exposed)), exposed, 1e-9) << "trial " << trial;
    EXPECT_EQ(delay_of_sums(sums, 1, 0.9 * exposed_sums(sums, 1)), 0);
  }
}

// A step of two ranks: 1 ms of waiting for data, 9 ms of forward and backward, and four sums of 8 ms of which the first is
// ready after 4 ms.
RunTiming overlapped() {
  RunTiming timing;
  RankTiming rank;
  rank.steps = 100;
  rank.phases[Phase::data_wait] = 0.1;
  rank.phases[Phase::forward] = 0.3;
  rank.phases[Phase::backward] = 0.6;
  rank.phases[Phase::exposed_communication] = 2.6;
  timing.ranks = {rank, rank};
  timing.facts.overlaps = true;
  timing.facts.bucket_bytes = {1e6, 1e6, 1e6, 1e6};
  timing.buckets = {
      {4e-3, 4e-3, 12e-3, 8e-3}, {6e-3, 12e-3, 20e-3, 8e-3}, {8e-3, 20e-3, 28e-3, 8e-3}, {10e-3, 28e-3, 36e-3, 8e-3}};
  return timing;
}

TEST(OverlapTest, ALargerBatchHidesMoreOfTheSums) {
  RunTiming timing = overlapped();
  const StepModel model = step_model(timing);
  ASSERT_NEAR(model.communication, 26e-3, 1e-9);
  // Four times the batch: from 16 ms on 32 ms of sums, of which backward hides 24 until it ends after 40 ms.
  const StepModel larger = with_batch(timing, model, 4, 36e-3);
  EXPECT_NEAR(larger.data_wait, 4e-3, 1e-9);
  EXPECT_NEAR(larger.compute, 36e-3, 1e-9);
  EXPECT_NEAR(larger.communication, 8e-3, 1e-9);
  EXPECT_NEAR(larger.optimizer, model.optimizer, 1e-12);
  // The same batch changes nothing.
  EXPECT_NEAR(with_batch(timing, model, 1, model.compute).seconds(), model.seconds(), 1e-9);
}

TEST(OverlapTest, WhatIsExposedBesideTheSumsStaysInProportion) {
  RunTiming timing = overlapped();
  for (RankTiming& rank : timing.ranks) rank.phases[Phase::exposed_communication] = 1.3;
  // Half of the 26 ms that the sums should leave is exposed, so of the remaining 8 ms it is half, too.
  EXPECT_NEAR(with_batch(timing, step_model(timing), 4, 36e-3).communication, 4e-3, 1e-9);
  // Each sum takes 9 ms: from 16 ms to 52.
  for (RankTiming& rank : timing.ranks) rank.phases[Phase::exposed_communication] = 3.0;
  const StepModel slower = step_model(timing);
  EXPECT_NEAR(slower.communication, 30e-3, 1e-9);
  EXPECT_NEAR(with_batch(timing, slower, 4, 36e-3).communication, 12e-3, 1e-9);
}

TEST(OverlapTest, SumsAfterBackwardAreNotHiddenByALargerBatch) {
  RunTiming timing = overlapped();
  timing.facts.overlaps = false;
  EXPECT_NEAR(with_batch(timing, step_model(timing), 4, 36e-3).communication, 26e-3, 1e-9);
}

}  // namespace
}  // namespace ddp
