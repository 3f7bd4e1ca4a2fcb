#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "comm/transport/mpi.h"
#include "distributed/harness/allocations.h"
#include "gradients/reducer.h"
#include "unit/gradients/reducer_suite.h"

namespace ddp {
namespace {

using testing::ReducerCase;

class MpiReducer : public ::testing::TestWithParam<ReducerCase> {};
class MpiStagedReducer : public ::testing::TestWithParam<ReducerCase> {};

TEST_P(MpiReducer, Reduces) {
  const std::unique_ptr<Communicator> ranks = make_mpi_communicator(/*timeout_seconds=*/30);
  GetParam().body(*ranks, testing::make_host_reducer);
}

TEST_P(MpiStagedReducer, Reduces) {
  const std::unique_ptr<Communicator> ranks = make_mpi_communicator(/*timeout_seconds=*/30);
  GetParam().body(*ranks, testing::make_staged_reducer);
}

INSTANTIATE_TEST_SUITE_P(World, MpiReducer, ::testing::ValuesIn(testing::reducer_cases()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(World, MpiStagedReducer, ::testing::ValuesIn(testing::reducer_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(MpiReducer, AllocatesNothingInAStep) {
  const std::unique_ptr<Communicator> ranks = make_mpi_communicator(/*timeout_seconds=*/30);
  for (const auto algorithm : {Reduction::ring, Reduction::root, Reduction::tree}) {
    const ReducerConfig config = testing::model_config(algorithm, true, 2 * ranks->size() + 1);
    const testing::ReducerRig rig = testing::make_host_reducer(*ranks, config);
    Reducer& reducer = *rig.reducer;
    const auto step = [&](int number) {
      reducer.begin_step(number);
      for (int shard = 0; shard < reducer.local_shards(); ++shard) {
        std::fill_n(reducer.shard_gradient(), config.elements, 1.0F);
        for (const Bucket& bucket : config.buckets) reducer.ready(bucket.begin);
        reducer.shard_done();
      }
      reducer.finish();
    };
    step(0);  // the message lists grow to their final size
    ranks->barrier();
    // A long wait is recorded for the watchdog, which allocates; on a loaded machine some rounds include such waits.
    long least = std::numeric_limits<long>::max();
    for (int round = 0; round < 5; ++round) {
      const long before = testing::allocation_count();
      for (int number = 0; number < 4; ++number) step(1 + round * 4 + number);
      least = std::min(least, testing::allocation_count() - before);
    }
    EXPECT_EQ(least, 0);
    ranks->barrier();
    EXPECT_EQ(reducer.gradient()[0], static_cast<float>(config.shards));
  }
}

}  // namespace
}  // namespace ddp
