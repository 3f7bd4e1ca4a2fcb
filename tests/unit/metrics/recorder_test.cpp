#include "metrics/recorder.h"

#include <gtest/gtest.h>

#include "comm/transport/self.h"
#include "comm/transport/threads.h"
#include "metrics/process_times.h"

namespace ddp {
namespace {

double fake_time = 0;
double read_fake() { return fake_time; }

// Step `n` of 10 ms, from 1, whose backward takes all of it on a clock that counts from 0.
StepInfo step_info(std::int64_t n) {
  StepInfo info;
  info.step = n;
  info.begin = 0.01 * static_cast<double>(n - 1);
  info.phases[Phase::backward] = 0.01 * static_cast<double>(n);
  info.loader = {static_cast<double>(n), 2.0 * static_cast<double>(n), 0.005 * static_cast<double>(n),
                 0.001 * static_cast<double>(n)};
  return info;
}

std::vector<SumTimes> sums_of(std::int64_t n) {
  const double begin = step_info(n).begin;
  return {{begin + 0.002, begin + 0.003, begin + 0.005}, {begin + 0.008, begin + 0.008, begin + 0.009}};
}

void make_steps(Recorder& recorder, std::int64_t from, std::int64_t to) {
  for (std::int64_t n = from; n <= to; ++n) {
    fake_time = 0.01 * static_cast<double>(n);
    recorder.step(step_info(n), sums_of(n));
  }
}

TEST(RecorderTest, TheFirstStepsDoNotCount) {
  const auto self = make_self_communicator();
  Recorder recorder(2, read_fake);
  make_steps(recorder, 1, 12);
  const std::vector<RankTiming> ranks = recorder.gather(*self, step_info(12).phases);
  ASSERT_EQ(ranks.size(), 1U);
  EXPECT_EQ(ranks[0].steps, 10);
  EXPECT_NEAR(ranks[0].phases[Phase::backward], 0.1, 1e-12);
  EXPECT_NEAR(ranks[0].best_work, 0.01, 1e-12);
  EXPECT_EQ(ranks[0].loader.batches, 10);
  EXPECT_NEAR(ranks[0].loader.busy_seconds, 0.05, 1e-12);
  EXPECT_NEAR(ranks[0].loader.cpu_seconds, 0.01, 1e-12);
  EXPECT_NEAR(ranks[0].sum_seconds, 10 * (0.002 + 0.001), 1e-9);
  const std::vector<BucketTiming> buckets = recorder.buckets();
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_NEAR(buckets[0].ready, 0.002, 1e-9);
  EXPECT_NEAR(buckets[0].begun, 0.003, 1e-9);
  EXPECT_NEAR(buckets[1].done, 0.009, 1e-9);
  EXPECT_NEAR(buckets[1].shortest, 0.001, 1e-9);
}

TEST(RecorderTest, ARunOfTheFirstStepsOnlyHasNoTiming) {
  const auto self = make_self_communicator();
  Recorder recorder(2, read_fake);
  make_steps(recorder, 1, 1);
  EXPECT_EQ(recorder.gather(*self, step_info(1).phases)[0].steps, 0);
  EXPECT_TRUE(recorder.buckets().empty());
}

TEST(RecorderTest, TheRingKeepsTheLastStepsInOrder) {
  Recorder recorder(2, read_fake);
  make_steps(recorder, 1, 3);
  ASSERT_EQ(recorder.last_steps().size(), 3U);
  make_steps(recorder, 4, 3 * static_cast<std::int64_t>(kRingSteps) / 2);
  const std::vector<StepSample> steps = recorder.last_steps();
  ASSERT_EQ(steps.size(), kRingSteps);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].step, static_cast<std::int64_t>(kRingSteps / 2 + 1 + i));
    EXPECT_NEAR(steps[i].phases[Phase::backward], 0.01, 1e-9);
    EXPECT_NEAR(steps[i].end - steps[i].begin, 0.01, 1e-9);
    EXPECT_EQ(steps[i].ready_batches, 2);
    EXPECT_EQ(steps[i].bucket_count, 2U);
  }
}

TEST(RecorderTest, TheRanksGatherAlike) {
  run_as_threads(3, [](Communicator& ranks) {
    Recorder recorder(0);
    for (std::int64_t n = 1; n <= 30; ++n) {
      EXPECT_EQ(recorder.gather_due(), n > 22);
      StepInfo info = step_info(n);
      info.phases[Phase::forward] = ranks.rank() * 0.001 * static_cast<double>(n);
      recorder.step(info, {});
    }
    PhaseTotals phases = step_info(30).phases;
    phases[Phase::forward] = ranks.rank() * 0.03;
    const std::vector<RankTiming> all = recorder.gather(ranks, phases);
    EXPECT_FALSE(recorder.gather_due());
    ASSERT_EQ(all.size(), ranks.rank() == 0 ? 3U : 0U);
    if (ranks.rank() != 0) return;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(all[rank].steps, 28);
      EXPECT_NEAR(all[rank].phases[Phase::forward], 0.028 * static_cast<double>(rank), 1e-12);
    }
  });
}

TEST(RecorderTest, TheSlowestRankOfEachIntervalIsCounted) {
  run_as_threads(3, [](Communicator& ranks) {
    Recorder recorder(0);
    PhaseTotals phases;
    std::vector<RankTiming> all;
    std::int64_t n = 0;
    // Rank 2 is slow in the first and the third of four intervals, rank 0 in the second; the last is too short to count.
    for (const auto& [slow, steps] : {std::pair(2, 22), std::pair(0, 20), std::pair(2, 25), std::pair(1, 19)}) {
      for (int i = 0; i < steps; ++i) {
        phases[Phase::backward] += ranks.rank() == slow ? 0.02 : 0.01;
        recorder.step({.step = ++n, .begin = 0, .phases = phases, .loader = {}}, {});
      }
      all = recorder.gather(ranks, phases);
    }
    if (ranks.rank() != 0) return;
    EXPECT_EQ(all[0].slowest, 1);
    EXPECT_EQ(all[1].slowest, 0);
    EXPECT_EQ(all[2].slowest, 2);
  });
}

TEST(ProcessTimesTest, WorkIsCounted) {
  const ProcessTimes before = process_times();
  double sum = 0;
  for (const double end = now() + 0.3; now() < end;) sum += 1;
  const ProcessTimes after = process_times();
  EXPECT_GT(sum, 0);
  EXPECT_GT(after.memory, 1e6);
  // On a core of its own this thread works for 0.3 s; otherwise it waits for the rest.
  EXPECT_GT(after.cpu + after.core_wait - before.cpu - before.core_wait, 0.25);
}

}  // namespace
}  // namespace ddp
