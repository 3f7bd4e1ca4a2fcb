#include "comm/nccl/nccl_communicator.h"

#include <gtest/gtest.h>

#include <tuple>

#include "comm/transport/threads.h"
#include "nccl/nccl_rig.h"
#include "nccl/nccl_suite.h"

namespace ddp {
namespace {

using testing::DeviceCommunicatorCase;
using testing::NcclCase;
using testing::ReducerCase;

template <class Case>
std::string name_of(const ::testing::TestParamInfo<std::tuple<int, Case>>& test) {
  return std::get<1>(test.param).name + "On" + std::to_string(std::get<0>(test.param));
}

class ThreadsNccl : public ::testing::TestWithParam<std::tuple<int, DeviceCommunicatorCase>> {};
TEST_P(ThreadsNccl, Sums) {
  const auto body = std::get<1>(GetParam()).body;
  run_as_threads(std::get<0>(GetParam()), [&](Communicator& ranks) {
    body(ranks, [](Communicator& communicator) { return testing::make_nccl_device(communicator); });
  });
}
INSTANTIATE_TEST_SUITE_P(Ranks, ThreadsNccl,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::ValuesIn(testing::device_communicator_cases())),
                         name_of<DeviceCommunicatorCase>);

class ThreadsNcclReducer : public ::testing::TestWithParam<std::tuple<int, ReducerCase>> {};
TEST_P(ThreadsNcclReducer, Reduces) {
  const auto body = std::get<1>(GetParam()).body;
  run_as_threads(std::get<0>(GetParam()), [&](Communicator& ranks) {
    body(ranks, [](Communicator& communicator, const ReducerConfig& config) {
      return testing::make_nccl_reducer(communicator, config);
    });
  });
}
INSTANTIATE_TEST_SUITE_P(Ranks, ThreadsNcclReducer,
                         ::testing::Combine(::testing::Values(1, 2, 3), ::testing::ValuesIn(testing::reducer_cases())),
                         name_of<ReducerCase>);

class ThreadsNcclCases : public ::testing::TestWithParam<std::tuple<int, NcclCase>> {};
TEST_P(ThreadsNcclCases, Hold) { run_as_threads(std::get<0>(GetParam()), std::get<1>(GetParam()).body); }
INSTANTIATE_TEST_SUITE_P(Ranks, ThreadsNcclCases,
                         ::testing::Combine(::testing::Values(2, 3), ::testing::ValuesIn(testing::nccl_cases())),
                         name_of<NcclCase>);

TEST(Nccl, SaysWhatItIs) {
  run_as_threads(1, [](Communicator& ranks) {
    const testing::Device device = testing::make_nccl_device(ranks);
    EXPECT_EQ(device.sums->description(), "NCCL " + std::to_string(NCCL_MAJOR) + "." + std::to_string(NCCL_MINOR) +
                                              "." + std::to_string(NCCL_PATCH));
    EXPECT_TRUE(device.sums->recordable());
  });
}

TEST(Nccl, PartsInPeace) {
  const testing::NcclCounts before = testing::nccl_counts();
  run_as_threads(3, [](Communicator& ranks) {
    testing::Device device = testing::make_nccl_device(ranks);
    const Memory values = device.backend->memory().allocate(10 * sizeof(float), "the values of a test");
    device.sums->all_reduce(values.at<float>(0), 10);
    device.sums.reset();  // without a wait: the destructor waits for pending work
  });
  const testing::NcclCounts after = testing::nccl_counts();
  EXPECT_EQ(after.made - before.made, 3);
  EXPECT_EQ(after.destroyed - before.destroyed, 3);
  EXPECT_EQ(after.aborted, before.aborted);
}

}  // namespace
}  // namespace ddp
