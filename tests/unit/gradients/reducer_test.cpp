#include "gradients/reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "base/error.h"
#include "comm/self.h"
#include "comm/threads.h"
#include "unit/comm/communicator_suite.h"
#include "unit/gradients/reducer_suite.h"

namespace ddp {
namespace {

using testing::ReducerCase;

class ThreadsReducer : public ::testing::TestWithParam<std::tuple<int, ReducerCase>> {};

TEST_P(ThreadsReducer, Reduces) {
  const auto body = std::get<1>(GetParam()).body;
  run_as_threads(std::get<0>(GetParam()), [&](Communicator& ranks) { body(ranks, testing::make_host_reducer); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadsReducer,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 7),
                                            ::testing::ValuesIn(testing::reducer_cases())),
                         [](const auto& test) {
                           return std::get<1>(test.param).name + "On" + std::to_string(std::get<0>(test.param));
                         });

TEST(Reducer, ASingleShardOnASingleRankIsNotCopied) {
  const auto self = make_self_communicator();
  Reducer reducer(*self, testing::model_config(ReductionAlgorithm::tree, true, 1));
  for (int step = 0; step < 3; ++step) {
    reducer.begin_step(step);
    const float* gradient = reducer.shard_gradient();
    reducer.shard_done();
    reducer.finish();
    EXPECT_EQ(reducer.gradient(), gradient);
    EXPECT_EQ(reducer.communication_seconds(), 0);
  }
}

TEST(Reducer, ReportsTheErrorOfARankAndNotItsEcho) {
  const ReducerConfig config = testing::model_config(ReductionAlgorithm::ring, true, 3);
  try {
    run_as_threads(3, [&](Communicator& ranks) {
      const testing::ReducerRig rig = testing::make_host_reducer(ranks, config);
      testing::run_step(rig, ranks, config, 61, 0);
      if (ranks.rank() == 1) throw Error(ExitCode::non_finite, "loss is not a number");
      testing::run_step(rig, ranks, config, 61, 1);
    });
    ADD_FAILURE() << "the error was lost";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::non_finite);
  }
}

TEST(Reducer, ARankThatGivesUpInMidstepDoesNotHang) {
  run_as_threads(3, [](Communicator& ranks) {
    const std::unique_ptr<Communicator> copy = ranks.duplicate();
    {
      const ReducerConfig config = testing::model_config(ReductionAlgorithm::ring, true, ranks.size());
      Reducer reducer(*copy, config);
      // Rank 0's thread waits for a bucket that the others never send; the destructor has to free it.
      if (ranks.rank() == 0) {
        std::fill_n(reducer.shard_gradient(), config.elements, 1.0F);
        reducer.ready(config.buckets[1].begin);
      }
    }
    ranks.barrier();
  });
}

TEST(Reducer, MeasuresWhatIsExposed) {
  run_as_threads(2, [](Communicator& ranks) {
    const ReducerConfig config = testing::model_config(ReductionAlgorithm::ring, true, 2);
    Reducer reducer(ranks, config);
    reducer.begin_step(0);
    std::fill_n(reducer.shard_gradient(), config.elements, 1.0F);
    reducer.shard_done();
    reducer.finish();
    EXPECT_GT(reducer.exposed_seconds(), 0);
    EXPECT_GT(reducer.communication_seconds(), 0);
  });
}

}  // namespace
}  // namespace ddp
