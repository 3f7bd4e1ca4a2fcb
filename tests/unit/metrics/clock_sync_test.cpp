#include "metrics/clock_sync.h"

#include <gtest/gtest.h>

#include "comm/transport/threads.h"

namespace ddp {
namespace {

TEST(ClockSyncTest, OffsetsAreFoundWithinTheirError) {
  run_as_threads(4, [](Communicator& ranks) {
    const double ahead = 1000.0 * ranks.rank();
    const ClockSample sample = measure_clock(ranks, [ahead] { return now() + ahead; });
    EXPECT_LE(sample.error, 0.5);
    EXPECT_NEAR(sample.offset, -ahead, sample.error + 1e-9);
    if (ranks.rank() == 0) {
      EXPECT_EQ(sample.error, 0);
    }
  });
}

TEST(ClockSyncTest, DriftIsInterpolated) {
  // Between 10 and 20 the own clock loses 1 s.
  const AlignedClock clock{{10, 5, 0.001}, {20, 6, 0.002}};
  EXPECT_DOUBLE_EQ(clock.drift(), 0.1);
  EXPECT_DOUBLE_EQ(clock.on_rank0(10), 15);
  EXPECT_DOUBLE_EQ(clock.on_rank0(15), 20.5);
  EXPECT_DOUBLE_EQ(clock.error(), 0.002);
  EXPECT_EQ((AlignedClock{{3, 1, 0}, {3, 1, 0}}).on_rank0(3), 4);
}

// Two measurements of the same clocks differ by up to the sum of their errors.
TEST(ClockSyncTest, AnUncertainDriftIsNone) {
  const AlignedClock clock{{10, 5, 0.001}, {10.5, 5.0025, 0.002}};
  EXPECT_EQ(clock.drift(), 0);
  EXPECT_EQ(clock.on_rank0(10.25), 15.25);
}

}  // namespace
}  // namespace ddp
