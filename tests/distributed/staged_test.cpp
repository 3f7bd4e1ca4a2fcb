#include <gtest/gtest.h>

#include <memory>

#include "comm/transport/mpi.h"
#include "unit/comm/device_communicator_suite.h"

namespace ddp {
namespace {

using testing::DeviceCommunicatorCase;

class MpiStaged : public ::testing::TestWithParam<DeviceCommunicatorCase> {};
class MpiHost : public ::testing::TestWithParam<DeviceCommunicatorCase> {};

TEST_P(MpiStaged, Sums) {
  const std::unique_ptr<Communicator> ranks = make_mpi_communicator(/*timeout_seconds=*/30);
  GetParam().body(*ranks, testing::make_staged_cpu);
}

TEST_P(MpiHost, Sums) {
  const std::unique_ptr<Communicator> ranks = make_mpi_communicator(/*timeout_seconds=*/30);
  GetParam().body(*ranks, testing::make_host_cpu);
}

INSTANTIATE_TEST_SUITE_P(World, MpiHost, ::testing::ValuesIn(testing::device_communicator_cases()),
                         [](const auto& test) { return test.param.name; });
INSTANTIATE_TEST_SUITE_P(World, MpiStaged, ::testing::ValuesIn(testing::device_communicator_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace ddp
