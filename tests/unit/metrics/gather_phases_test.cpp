#include "metrics/gather_phases.h"

#include <gtest/gtest.h>

#include "comm/transport/threads.h"

namespace ddp {
namespace {

TEST(GatherPhasesTest, RankZeroGetsAllInOrder) {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto totals_of = [](int rank) {
      PhaseTotals totals;
      for (std::size_t i = 0; i < kPhaseCount; ++i) totals.seconds[i] = 100.0 * rank + static_cast<double>(i) + 0.25;
      return totals;
    };
    run_as_threads(ranks, [&](Communicator& communicator) {
      const std::vector<PhaseTotals> all = gather_phases(communicator, totals_of(communicator.rank()));
      ASSERT_EQ(all.size(), static_cast<std::size_t>(communicator.rank() == 0 ? ranks : 0));
      if (communicator.rank() != 0) return;
      for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(all[static_cast<std::size_t>(rank)], totals_of(rank));
    });
  }
}

}  // namespace
}  // namespace ddp
