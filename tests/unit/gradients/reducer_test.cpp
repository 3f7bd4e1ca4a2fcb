#include "gradients/reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "comm/transport/self.h"
#include "comm/transport/threads.h"
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

class ThreadsStagedReducer : public ::testing::TestWithParam<std::tuple<int, ReducerCase>> {};

TEST_P(ThreadsStagedReducer, Reduces) {
  const auto body = std::get<1>(GetParam()).body;
  run_as_threads(std::get<0>(GetParam()), [&](Communicator& ranks) { body(ranks, testing::make_staged_reducer); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadsStagedReducer,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 7),
                                            ::testing::ValuesIn(testing::reducer_cases())),
                         [](const auto& test) {
                           return std::get<1>(test.param).name + "On" + std::to_string(std::get<0>(test.param));
                         });

TEST(Reducer, ASingleShardOnASingleRankIsNotCopied) {
  const auto self = make_self_communicator();
  for (const auto algorithm : {Reduction::ring, Reduction::tree}) {
    const testing::ReducerRig rig = testing::make_host_reducer(*self, testing::model_config(algorithm, true, 1));
    Reducer& reducer = *rig.reducer;
    EXPECT_TRUE(reducer.recordable());
    EXPECT_FALSE(reducer.overlaps());
    for (int step = 0; step < 3; ++step) {
      reducer.begin_step(step);
      const float* gradient = reducer.shard_gradient();
      reducer.ready(0);
      reducer.shard_done();
      reducer.finish();
      double value = 4;
      reducer.sum(&value, 1);
      reducer.wait();
      EXPECT_EQ(reducer.gradient(), gradient);
      EXPECT_EQ(value, 4);
    }
  }
}

TEST(Reducer, ReportsTheErrorOfARankAndNotItsEcho) {
  const ReducerConfig config = testing::model_config(Reduction::ring, true, 3);
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
      const ReducerConfig config = testing::model_config(Reduction::ring, true, ranks.size());
      const testing::ReducerRig rig = testing::make_host_reducer(*copy, config);
      Reducer& reducer = *rig.reducer;
      // Rank 0's thread waits for a bucket that the others never send; the destructor must release it.
      if (ranks.rank() == 0) {
        std::fill_n(reducer.shard_gradient(), config.elements, 1.0F);
        reducer.ready(config.buckets[1].begin);
      }
    }
    ranks.barrier();
  });
}

// Values of a few bits are exact, and so are their sums; longer ones are rounded to 8 bits twice.
TEST(Reducer, SumsInBfloat16) {
  for (const auto make : {testing::make_host_reducer, testing::make_staged_reducer})
    for (const int ranks : {1, 2, 4}) {
      run_as_threads(ranks, [&](Communicator& communicator) {
        ReducerConfig config = testing::model_config(Reduction::ring, true, 2 * communicator.size());
        config.bf16 = true;
        const testing::ReducerRig rig = make(communicator, config);
        Reducer& reducer = *rig.reducer;
        for (std::int64_t step = 0; step < 2; ++step) {
          reducer.begin_step(step);
          for (int shard = 0; shard < 2; ++shard) {
            float* const gradient = reducer.shard_gradient();
            for (std::size_t i = 0; i < config.elements; ++i)
              gradient[i] = i % 2 == 0 ? static_cast<float>(i % 9) : 0.3F;
            reducer.ready(0);
            reducer.shard_done();
          }
          reducer.finish();
          reducer.wait();
          const auto shards = static_cast<float>(config.shards);
          for (std::size_t i = 0; i < config.elements; ++i) {
            if (i % 2 == 0) {
              ASSERT_EQ(reducer.gradient()[i], shards * static_cast<float>(i % 9)) << i;
            } else {
              ASSERT_NEAR(reducer.gradient()[i], shards * 0.3F, shards * 0.3F * 3 / 256) << i;
            }
          }
        }
      });
    }
}

// Which elements a rank gets the sum of, and that those have the bits of a sum that all get.
TEST(Reducer, ScattersPartsOfEachBucketToTheRanksOfAHost) {
  const std::vector<std::vector<int>> placements = {{0, 0}, {0, 0, 1, 1}, {0, 0, 0}};
  for (const std::vector<int>& hosts : placements) {
    for (const bool bf16 : {false, true}) {
      run_as_threads(static_cast<int>(hosts.size()), [&](Communicator& ranks) {
        ReducerConfig config = testing::model_config(Reduction::ring, true, 2 * ranks.size());
        config.bf16 = bf16;
        const auto make = [&](const ReducerConfig& of, bool scatter) {
          testing::ReducerRig rig;
          rig.backend = make_cpu_backend();
          rig.sums =
              make_host_communicator(ranks, rig.backend->device(), {of.algorithm, of.shards, {}, hosts, scatter});
          rig.reducer = std::make_unique<Reducer>(ranks, *rig.backend, *rig.sums, of);
          return rig;
        };
        const testing::ReducerRig whole = make(config, false);
        ReducerConfig parts = config;
        const int place = hosts.size() == 4 ? ranks.rank() % 2 : ranks.rank();
        const int of_host = hosts.size() == 4 ? 2 : ranks.size();
        parts.part = [=](std::int64_t elements) { return part(elements, of_host, place); };
        const testing::ReducerRig scattered = make(parts, true);
        std::int64_t elements = 0;
        for (const Range& range : updated_ranges(parts)) elements += range.size();
        for (int step = 0; step < 3; ++step) {
          testing::run_step(whole, ranks, config, 91, step);
          testing::run_step(scattered, ranks, parts, 91, step);
          for (const Range& range : updated_ranges(parts)) {
            for (std::int64_t i = range.begin; i < range.end; ++i) {
              ASSERT_EQ(scattered.reducer->gradient()[i], whole.reducer->gradient()[i]) << i;
            }
          }
        }
        ranks.all_reduce(std::span(&elements, 1), ReduceOp::sum);
        EXPECT_EQ(elements, ranks.size() / of_host * static_cast<std::int64_t>(config.elements));
      });
    }
  }
}

// Records how far a step has progressed when each sum starts.
class Watched final : public DeviceCommunicator {
 public:
  explicit Watched(bool recordable) : recordable_(recordable) {}
  std::string description() const override { return "watched"; }
  bool recordable() const override { return recordable_; }
  bool overlaps() const override { return true; }
  void all_reduce(std::span<float* const> /*partials*/, std::size_t /*count*/, Start start) override {
    begun.push_back(start);
  }
  void all_reduce(Bf16* /*values*/, std::size_t /*count*/, Start /*start*/) override {}
  void all_reduce(double* /*values*/, std::size_t /*count*/) override {}
  void join() override {}
  void wait(const std::string& /*what*/) override {}
  void wait_for(DeviceEvent& /*event*/, const std::string& /*what*/) override {}

  std::vector<Start> begun;

 private:
  bool recordable_;
};

TEST(Reducer, IsRecordableWhereItsSumsAre) {
  run_as_threads(2, [](Communicator& ranks) {
    const auto backend = make_cpu_backend();
    const ReducerConfig config = testing::model_config(Reduction::ring, true, 2);
    for (const bool recordable : {true, false}) {
      Watched sums(recordable);
      EXPECT_EQ(Reducer(ranks, *backend, sums, config).recordable(), recordable);
    }
  });
}

TEST(Reducer, BeginsASumAsSoonAsItsBucketIsReady) {
  run_as_threads(2, [](Communicator& ranks) {
    const auto backend = make_cpu_backend();
    const ReducerConfig config = testing::model_config(Reduction::ring, true, 4);
    const std::size_t buckets = config.buckets.size();
    ASSERT_GT(buckets, 2U);
    Watched sums(false);
    Reducer reducer(ranks, *backend, sums, config);
    reducer.begin_step(0);
    for (int shard = 0; shard < 2; ++shard) {
      reducer.shard_gradient();
      reducer.ready(config.buckets[1].begin);
      // Only the last shard completes sums.
      EXPECT_EQ(sums.begun.size(), shard == 0 ? 0U : 2U);
      reducer.shard_done();
    }
    reducer.finish();
    std::vector<Start> expected(buckets, Start::now);
    expected.back() = Start::at_join;
    EXPECT_EQ(sums.begun, expected);
  });
}

}  // namespace
}  // namespace ddp
