#include <gtest/gtest.h>

#include <tuple>

#include "comm/threads.h"
#include "unit/comm/device_communicator_suite.h"

namespace ddp {
namespace {

using testing::DeviceCommunicatorCase;

class StagedThreads : public ::testing::TestWithParam<std::tuple<int, DeviceCommunicatorCase>> {};

TEST_P(StagedThreads, Sum) {
  const auto body = std::get<1>(GetParam()).body;
  run_as_threads(std::get<0>(GetParam()), [&](Communicator& ranks) { body(ranks, testing::make_staged_cpu); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, StagedThreads,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 7),
                                            ::testing::ValuesIn(testing::device_communicator_cases())),
                         [](const auto& test) {
                           return std::get<1>(test.param).name + "On" + std::to_string(std::get<0>(test.param));
                         });

TEST(Staged, SaysWhatItIs) {
  run_as_threads(2, [](Communicator& ranks) {
    const testing::Device device = testing::make_staged_cpu(ranks);
    EXPECT_EQ(device.sums->description(), "MPI through the host");
    EXPECT_FALSE(device.sums->recordable());
  });
}

}  // namespace
}  // namespace ddp
