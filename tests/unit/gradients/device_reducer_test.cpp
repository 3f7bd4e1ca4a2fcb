#include "gradients/device_reducer.h"

#include <gtest/gtest.h>

#include <tuple>

#include "base/error.h"
#include "comm/self.h"
#include "comm/threads.h"
#include "unit/gradients/reducer_suite.h"

namespace ddp {
namespace {

using testing::ReducerCase;

class ThreadsDeviceReducer : public ::testing::TestWithParam<std::tuple<int, ReducerCase>> {};

TEST_P(ThreadsDeviceReducer, Reduces) {
  const auto body = std::get<1>(GetParam()).body;
  run_as_threads(std::get<0>(GetParam()), [&](Communicator& ranks) { body(ranks, testing::make_staged_reducer); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadsDeviceReducer,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 7),
                                            ::testing::ValuesIn(testing::reducer_cases())),
                         [](const auto& test) {
                           return std::get<1>(test.param).name + "On" + std::to_string(std::get<0>(test.param));
                         });

TEST(DeviceReducer, NeedsNoCommunicatorOnOneRank) {
  const auto self = make_self_communicator();
  const auto backend = make_cpu_backend();
  for (const auto algorithm : {ReductionAlgorithm::ring, ReductionAlgorithm::tree}) {
    const ReducerConfig config = testing::model_config(algorithm, true, 1);
    DeviceReducer reducer(*self, *backend, nullptr, config);
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
      EXPECT_EQ(reducer.gradient(), gradient) << "a single shard is not copied";
      EXPECT_EQ(value, 4);
    }
  }
}

// What is a few bits long is not rounded, and its sums are exact; what is longer is rounded to 8 bits twice.
TEST(DeviceReducer, SumsInBfloat16) {
  for (const int ranks : {1, 2, 4}) {
    run_as_threads(ranks, [](Communicator& communicator) {
      const auto backend = make_cpu_backend();
      const auto sums = make_staged_communicator(communicator, *backend);
      ReducerConfig config = testing::model_config(ReductionAlgorithm::ring, true, 2 * communicator.size());
      config.bf16 = true;
      DeviceReducer reducer(communicator, *backend, sums.get(), config);
      for (std::int64_t step = 0; step < 2; ++step) {
        reducer.begin_step(step);
        for (int shard = 0; shard < 2; ++shard) {
          float* const gradient = reducer.shard_gradient();
          for (std::size_t i = 0; i < config.elements; ++i) gradient[i] = i % 2 == 0 ? static_cast<float>(i % 9) : 0.3F;
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

TEST(DeviceReducer, NeedsACommunicatorOnSeveralRanks) {
  run_as_threads(2, [](Communicator& ranks) {
    const auto backend = make_cpu_backend();
    const ReducerConfig config = testing::model_config(ReductionAlgorithm::ring, true, 2);
    EXPECT_THROW(DeviceReducer(ranks, *backend, nullptr, config), Error);
  });
}

// Says yes where the sums of the CPU say no.
class Recordable final : public DeviceCommunicator {
 public:
  std::string description() const override { return "recordable"; }
  bool recordable() const override { return true; }
  void all_reduce(float* /*values*/, std::size_t /*count*/) override {}
  void all_reduce(double* /*values*/, std::size_t /*count*/) override {}
  void all_reduce(Bf16* /*values*/, std::size_t /*count*/) override {}
  void join() override {}
  void wait(const std::string& /*what*/) override {}
};

TEST(DeviceReducer, IsRecordableWhereItsSumsAre) {
  run_as_threads(2, [](Communicator& ranks) {
    const auto backend = make_cpu_backend();
    const auto staged = make_staged_communicator(ranks, *backend);
    Recordable recordable;
    const auto made_of = [&](DeviceCommunicator& sums, ReductionAlgorithm algorithm) {
      return DeviceReducer(ranks, *backend, &sums, testing::model_config(algorithm, true, 2)).recordable();
    };
    EXPECT_TRUE(made_of(recordable, ReductionAlgorithm::ring));
    EXPECT_FALSE(made_of(*staged, ReductionAlgorithm::ring));
    // Through the host's memory nothing can be recorded.
    EXPECT_FALSE(made_of(recordable, ReductionAlgorithm::tree));
    EXPECT_FALSE(made_of(recordable, ReductionAlgorithm::root));
  });
}

}  // namespace
}  // namespace ddp
