#include <gtest/gtest.h>

#include <tuple>

#include "comm/transport/threads.h"
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

class HostThreads : public ::testing::TestWithParam<std::tuple<int, DeviceCommunicatorCase>> {};

TEST_P(HostThreads, Sum) {
  const auto body = std::get<1>(GetParam()).body;
  run_as_threads(std::get<0>(GetParam()), [&](Communicator& ranks) { body(ranks, testing::make_host_cpu); });
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostThreads,
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
    EXPECT_FALSE(device.sums->overlaps());
  });
}

TEST(Host, SaysWhatItIs) {
  for (const int count : {1, 2}) {
    run_as_threads(count, [&](Communicator& ranks) {
      const auto backend = make_cpu_backend();
      const auto sums = make_message_communicator(ranks, backend->device(), {Reduction::tree, 2});
      EXPECT_EQ(sums->description(), count == 1 ? "none, one rank" : "MPI, a fixed tree of messages");
      EXPECT_EQ(sums->recordable(), count == 1);
    });
  }
}

// Rank 1 receives its sum before rank 0 reaches join().
TEST(Host, ASumOverlapsWhatFollows) {
  run_as_threads(2, [](Communicator& ranks) {
    const std::unique_ptr<Communicator> copy = ranks.duplicate();
    copy->set_timeout(20);
    const testing::Device device = testing::make_host_cpu(*copy);
    float value = 1;
    device.sums->all_reduce(&value, 1, Start::now);
    if (ranks.rank() == 1) device.sums->join();
    ranks.barrier();
    device.sums->join();
    EXPECT_EQ(value, 2);
  });
}

}  // namespace
}  // namespace ddp
